"""Models that differ in more than the encoding, compared in bits per byte of the same documents.

Each model reads a text in the tokens of its own tokenizer, so that neither losses per token nor targets
compare. Documents do: where two models were scored on the same number of bytes of a document, those were the
same bytes, in any tokens. Only such documents count. Each length is in a model's own
tokens.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from zoo.comparison.caveats import Caveat
from zoo.comparison.comparable import Key, differing
from zoo.comparison.formatting import protocol_text
from zoo.comparison.frame import Results
from zoo.comparison.labels import Series
from zoo.comparison.run_info import RunInfo
from zoo.errors import InputError
from zoo.evaluation.interval import UNKNOWN, interval_of_ratio
from zoo.evaluation.measurement import Measurement, Row, Targets, Units

UNKNOWN_VALUE = "not known"


def models_results(
    runs: Sequence[RunInfo], remedy: str
) -> tuple[Results, tuple[Caveat, ...], list[tuple[str, str]]]:
    """The results of models on the documents that all of them scored in the same bytes; `encoding` is the
    name of the model.

    Args:
        remedy: the command that measures all of them alike.

    Returns: the results, the caveats, and the names and values of what the models have in common.

    Raises:
        InputError: they have no scores on one text in common.
    """
    readings = list(_readings(runs))
    if len(readings) < 2:
        raise InputError("missing models: zoo compare --models runs/a runs/b")
    shared, left_out = _shared(readings)
    series = [
        replace(one, runs=(replace(one.runs[0], measurements=tuple(shared[one.label])),))
        for one in readings
        if shared[one.label]
    ]
    if not series:
        why = "; ".join(one.text for one in left_out)
        raise InputError(f"these models have no scores in common ({why}); do it with: {remedy}")
    facts = {one.label: _facts(one.runs[0]) for one in readings}
    differ = differing([*facts.items()])
    unknown = [label for label, own in facts.items() if own["model", "trained on"] == UNKNOWN_VALUE]
    named = ", ".join(one.key[1] for one in differ) or "nothing"
    caveats = [Caveat("models", f"models are compared, not encodings: they differ in {named}")]
    caveats += [Caveat("differs", str(one).removeprefix("model ")) for one in differ]
    if unknown:
        caveats.append(Caveat("seen", f"{', '.join(unknown)} may have been trained on this text"))
    same = facts[readings[0].label].keys() - {one.key for one in differ}
    about = [(key[1], value) for key, value in facts[readings[0].label].items() if key in same]
    return Results.of(series), (*caveats, _bytes_per_token(series), *left_out), about


def _readings(runs: Sequence[RunInfo]) -> Iterator[Series]:
    """A curve for each model as it was trained, and for each change of its encoding after training."""
    names = [Path(run.path).resolve().name for run in runs]
    for run, name in zip(runs, names, strict=True):
        own = name if names.count(name) == 1 else run.path
        changes: dict[str, list[Measurement]] = defaultdict(list)
        for one in run.measurements:
            changes[one.encoding if one.changed else ""].append(one)
        for changed, measured in sorted(changes.items()):
            label = f"{own} ({changed})" if changed else own
            yield Series(label, (replace(run, measurements=tuple(measured)),), measured[0].changed)


def _text(run: RunInfo, one: Measurement) -> str:
    """The digest of the text that was scored."""
    return one.targets.text or str((run.card.get("fingerprint") or {}).get("corpus"))[:12]


def _shared(readings: Sequence[Series]) -> tuple[dict[str, list[Measurement]], list[Caveat]]:
    """The measurements that several readings have of one text, on the documents that all of these scored;
    and caveats of the rest."""
    found: dict[tuple[str, str, str], dict[str, Measurement]] = defaultdict(dict)
    for reading in readings:
        (run,) = reading.runs
        # Of several, that on the most targets, and with the start token.
        ordered = sorted(run.measurements, key=lambda one: (one.targets.count, _start_token(one)))
        for one in filter(_measured, ordered):
            found[*one.kind[:2], _text(run, one)][reading.label] = one
    shared: dict[str, list[Measurement]] = {reading.label: [] for reading in readings}
    left_out: list[Caveat] = []
    for (protocol, _, text), own in found.items():
        named = protocol_text(protocol, next(iter(own.values())).parameters)
        if len(own) < 2:
            why = f"was measured on the text {text} for {', '.join(own)} alone, and is left out"
            left_out.append(Caveat("left out", f"{named} {why}"))
            continue
        sizes = [dict(zip(units.documents, units.bytes, strict=True)) for units in map(_units, own.values())]
        first, *others = sizes
        same = [doc for doc, size in first.items() if size and all(one.get(doc) == size for one in others)]
        if (most := max(map(len, sizes))) > len(same):
            why = f"{len(same)} of up to {most} documents were scored by all in the same bytes"
            why += "; with a larger evaluate.max_tokens more are scored whole"
            left_out.append(Caveat("left out", f"{named}: {why}"))
        if not same:
            continue
        digest = hashlib.sha256(repr([(doc, first[doc]) for doc in same]).encode()).hexdigest()[:12]
        for label, one in own.items():
            rows = [_narrowed(row, set(same)) for row in one.rows]
            targets = Targets(digest=digest, count=len(same))
            shared[label].append(one.model_copy(update={"rows": rows, "targets": targets}))
    return shared, left_out


def _measured(one: Measurement) -> list[Row]:
    """The rows of a likelihood that have the scores of each document."""
    if one.axis != "length":
        return []  # bins of one window: equally many bytes need not be the same ones
    return [row for row in one.rows if row.units is not None and row.units.bytes is not None]


def _units(one: Measurement) -> Any:
    return _measured(one)[0].units


def _start_token(one: Measurement) -> str:
    return one.targets.start_token or ""


def _narrowed(row: Row, same: set[int]) -> Row:
    """A row of these documents alone, in bits per byte alone."""
    units = row.units
    if units is None or units.bytes is None:
        return row if row.note else Row(length=row.length, note="the scores of each document are not stored")
    kept = [index for index, document in enumerate(units.documents) if document in same]
    nats, tokens, sizes = (
        [column[index] for index in kept] for column in (units.nats, units.tokens, units.bytes)
    )
    bits, (low, high) = None, UNKNOWN
    if None not in nats:
        amounts = np.array(nats, dtype=np.float64) / math.log(2)
        bits = float(amounts.sum() / sum(sizes))
        low, high = interval_of_ratio(amounts, np.array(sizes))
    costs = row.model_dump(include={"tokens_per_second", "peak_memory_mb"}, exclude_none=True)
    return Row(
        length=row.length, documents=len(kept), tokens=sum(tokens), bits_per_byte=bits,
        bits_per_byte_low=None if low is None else max(low, 0.0), bits_per_byte_high=high,
        units=Units(documents=[*sorted(same)], nats=nats, tokens=tokens, bytes=sizes), **costs,
    )  # fmt: skip


def _facts(run: RunInfo) -> dict[Key, str]:
    """Facts of a model by which a reader judges its numbers."""
    model, card = run.recipe["model"], run.card
    imported, fingerprint = card.get("imported") or {}, card.get("fingerprint") or {}
    # The card of an imported model has the corpus that it is scored on.
    corpus = None if imported else fingerprint.get("corpus")
    seen, total = card.get("tokens_seen"), (card.get("parameters") or {}).get("total")
    facts = {
        "from": str(imported.get("from") or "trained here"),
        "architecture": str(imported.get("architecture") or "the zoo's"),
        "size": "{num_layers} layers of width {d_model}, {num_heads} heads".format(**model),
        "parameters": UNKNOWN_VALUE if total is None else f"{total:,}",
        "encoding": str(run.measurements[0].encoding),
        "trained length": f"{run.recipe['data']['sequence_length']:,}",
        "tokenizer": str(fingerprint.get("tokenizer") or UNKNOWN_VALUE)[:12],
        "trained on": str(corpus or UNKNOWN_VALUE)[:12],
        "tokens seen": UNKNOWN_VALUE if seen is None else f"{seen:,}",
        "start token": max(map(_start_token, run.measurements)) or "none",
    }
    return {("model", key): value for key, value in facts.items()}


def _bytes_per_token(series: Sequence[Series]) -> Caveat:
    """The amount of text that a length is to each model."""
    parts = []
    for one in series:
        units = _units(one.runs[0].measurements[0])
        parts.append(f"{sum(units.bytes) / max(sum(units.tokens), 1):.2f} for {one.label}")
    text = f"a length is in each model's own tokens; bytes per token: {', '.join(parts)}"
    return Caveat("lengths", text)
