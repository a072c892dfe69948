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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from zoo.comparison.caveats import Caveat
from zoo.comparison.comparable import groups_as_text
from zoo.comparison.formatting import protocol_text
from zoo.comparison.frame import Results
from zoo.comparison.labels import Series
from zoo.comparison.runs import RunInfo
from zoo.errors import InputError, Problem, printable
from zoo.evaluation.interval import UNKNOWN, interval_of_ratio
from zoo.evaluation.measurement import Measurement, Row, Targets, Units

UNKNOWN_VALUE = "not known"


@dataclass(frozen=True)
class Reading:
    """A model with its measurements, as it was trained or with its encoding changed after training."""

    label: str
    run: RunInfo
    changed: dict[str, Any]


def models_results(
    runs: Sequence[RunInfo], remedy: str
) -> tuple[Results, tuple[Caveat, ...], list[tuple[str, str]]]:
    """The results of models on the documents that all of them scored in the same bytes; `encoding` is the
    name of the model.

    Args:
        remedy: the command that measures all of them alike.

    Returns: the results, the caveats, and the names and values of what the models have in common.

    Raises:
        InputError: they were scored on different texts, or have no scores in common.
    """
    readings = list(_readings(runs))
    if len(readings) < 2:
        raise InputError("compare which models? zoo compare --models runs/a runs/b")
    _validate_text(readings, remedy)
    left_out: list[Caveat] = []
    shared = _shared(readings, left_out)
    series = [
        Series(one.label, (replace(one.run, measurements=tuple(shared[one.label])),), one.changed)
        for one in readings
        if shared[one.label]
    ]
    if not series:
        why = "; ".join(one.text for one in left_out)
        raise InputError(f"these models have no scores in common ({why}); do it with: {remedy}")
    known = {one.label: _facts(one) for one in readings}
    keys = list(dict.fromkeys(key for facts in known.values() for key in facts))
    values = {key: {label: facts.get(key, "none") for label, facts in known.items()} for key in keys}
    differ = [key for key in keys if len(set(values[key].values())) > 1]
    blind = [label for label, facts in known.items() if facts["trained on"] == UNKNOWN_VALUE]
    caveats = [
        Caveat(
            "models", f"models are compared, not encodings: they differ in {', '.join(differ) or 'nothing'}"
        ),
        *(Caveat("differs", f"{key}: {_grouped(values[key])}") for key in differ),
    ]
    if blind:
        caveats.append(Caveat("seen", f"{', '.join(blind)} may have been trained on this text"))
    caveats += [_bytes_per_token(series), *left_out]
    about = [(key, next(iter(values[key].values()))) for key in keys if key not in differ]
    return Results.of(series), tuple(caveats), about


def _readings(runs: Sequence[RunInfo]) -> Iterator[Reading]:
    names = [Path(run.path).resolve().name for run in runs]
    for run, name in zip(runs, names, strict=True):
        own = name if names.count(name) == 1 else run.path
        changes: dict[str, list[Measurement]] = defaultdict(list)
        for one in run.measurements:
            changes[one.encoding if one.changed else ""].append(one)
        for changed, measured in sorted(changes.items()):
            label = printable(f"{own} ({changed})" if changed else own)
            yield Reading(label, replace(run, measurements=tuple(measured)), measured[0].changed)


def _validate_text(readings: Sequence[Reading], remedy: str) -> None:
    texts: dict[str, list[str]] = defaultdict(list)
    for reading in readings:
        for one in filter(_measured, reading.run.measurements):
            texts[_text_of(one, reading.run)].append(reading.run.path)
    unknown = texts.pop("", [])
    problems = [
        Problem(f"which text was scored is not stored; measure it again: {remedy}", where=path)
        for path in dict.fromkeys(unknown)
    ]
    if len(texts) > 1:
        named = groups_as_text([(text, [*dict.fromkeys(paths)]) for text, paths in texts.items()])
        problems.append(Problem(f"different texts were scored: {named}"))
    if problems:
        raise InputError(problems)


def _text_of(one: Measurement, run: RunInfo) -> str:
    """The digest of the text that was scored; empty where it is not stored."""
    # Before it was stored, a measurement was always of the text of the card.
    return one.targets.text or str((run.card.get("fingerprint") or {}).get("corpus") or "")[:12]


def _shared(readings: Sequence[Reading], left_out: list[Caveat]) -> dict[str, list[Measurement]]:
    """The measurements of each reading that others have too, of the documents that all were scored on."""
    found: dict[tuple[str, str], dict[str, Measurement]] = defaultdict(dict)
    for reading in readings:
        # Of several, that on the most targets, and with the start token.
        for one in sorted(reading.run.measurements, key=lambda one: (one.targets.count, _start_token(one))):
            if _measured(one):
                found[one.kind[:2]][reading.label] = one
    shared: dict[str, list[Measurement]] = {reading.label: [] for reading in readings}
    for (protocol, _), own in found.items():
        named = protocol_text(protocol, next(iter(own.values())).parameters)
        if len(own) < 2:
            left_out.append(
                Caveat("left out", f"{named} was measured for {', '.join(own)} alone, and is left out")
            )
            continue
        sizes = [dict(zip(*_columns(one, "documents", "bytes"), strict=True)) for one in own.values()]
        first, *others = sizes
        same = [
            doc for doc, size in first.items() if size and all(other.get(doc) == size for other in others)
        ]
        if not same:
            left_out.append(Caveat("left out", f"{named}: no document was scored by all in the same bytes"))
            continue
        most = max(map(len, sizes))
        if len(same) < most:
            said = f"{named}: {len(same)} documents count, of up to {most}: of the others not the same bytes"
            left_out.append(Caveat("left out", f"{said} were scored by all"))
        digest = hashlib.sha256(repr([(doc, first[doc]) for doc in same]).encode()).hexdigest()[:12]
        for label, one in own.items():
            rows = [_narrowed(row, set(same)) for row in one.rows]
            targets = Targets(digest=digest, count=len(same))
            shared[label].append(one.model_copy(update={"rows": rows, "targets": targets}))
    return shared


def _measured(one: Measurement) -> list[Row]:
    """The rows of a likelihood that have the scores of each document."""
    if one.axis != "length":
        return []  # bins of one window: equally many bytes need not be the same ones
    return [row for row in one.rows if row.units is not None and row.units.bytes is not None]


def _start_token(one: Measurement) -> str:
    return one.targets.start_token or ""


def _columns(one: Measurement, *names: str) -> list[list[int]]:
    units = _measured(one)[0].units
    return [getattr(units, name) for name in names]


def _narrowed(row: Row, same: set[int]) -> Row:
    """A row of these documents alone, in bits per byte alone."""
    units = row.units
    if units is None or units.bytes is None:
        return row if row.note else Row(length=row.length, note="the scores of each document are not stored")
    kept = [index for index, document in enumerate(units.documents or ()) if document in same]
    nats = [(units.nats or ())[index] for index in kept]
    tokens, sizes = ([column[index] for index in kept] for column in (units.tokens or [], units.bytes))
    bits, (low, high) = None, UNKNOWN
    if None not in nats:
        amounts = np.array(nats, dtype=np.float64) / math.log(2)
        bits = float(amounts.sum() / sum(sizes))
        low, high = interval_of_ratio(amounts, np.array(sizes))
    costs = {
        name: getattr(row, name)
        for name in ("tokens_per_second", "peak_memory_mb")
        if getattr(row, name) is not None
    }
    return Row(
        length=row.length, documents=len(kept), tokens=sum(tokens), bits_per_byte=bits,
        bits_per_byte_low=None if low is None else max(low, 0.0), bits_per_byte_high=high,
        units=Units(documents=[*sorted(same)], nats=nats, tokens=tokens, bytes=sizes), **costs,
    )  # fmt: skip


def _facts(reading: Reading) -> dict[str, str]:
    """Facts of a model by which a reader judges its numbers."""
    recipe, card = reading.run.recipe, reading.run.card
    model, imported = recipe["model"], card.get("imported") or {}
    tokenizer = (card.get("fingerprint") or {}).get("tokenizer")
    # Of a model from elsewhere the card's corpus is that on which it is scored.
    corpus = None if imported else (card.get("fingerprint") or {}).get("corpus")
    seen, total = card.get("tokens_seen"), (card.get("parameters") or {}).get("total")
    facts = {
        "from": str(imported.get("from") or "trained here"),
        "architecture": str(imported.get("architecture") or "the zoo's"),
        "size": "{num_layers} layers of width {d_model}, {num_heads} heads".format(**model),
        "parameters": UNKNOWN_VALUE if total is None else f"{total:,}",
        "encoding": str(reading.run.measurements[0].encoding),
        "trained length": f"{recipe['data']['sequence_length']:,}",
        "tokenizer": str(tokenizer)[:12] if tokenizer else UNKNOWN_VALUE,
        "trained on": str(corpus)[:12] if corpus else UNKNOWN_VALUE,
        "tokens seen": UNKNOWN_VALUE if seen is None else f"{seen:,}",
        "start token": max(map(_start_token, reading.run.measurements)) or "none",
    }
    return facts


def _grouped(values: dict[str, str]) -> str:
    labels: dict[str, list[str]] = defaultdict(list)
    for label, value in values.items():
        labels[value].append(label)
    return groups_as_text([*labels.items()])


def _bytes_per_token(series: Sequence[Series]) -> Caveat:
    """How much text a length is to each model."""
    parts = []
    for one in series:
        tokens, sizes = _columns(one.runs[0].measurements[0], "tokens", "bytes")
        parts.append(f"{sum(sizes) / max(sum(tokens), 1):.2f} for {one.label}")
    text = f"a length is in each model's own tokens; bytes per token: {', '.join(parts)}"
    return Caveat("lengths", text)
