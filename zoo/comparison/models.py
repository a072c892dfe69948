"""Models that differ in more than the encoding, compared in bits per byte of the same documents.

Each model reads a text in the tokens of its own tokenizer, so that neither losses per token nor targets
compare. Documents do: where two models were scored on the same number of bytes of a document, those were the
same bytes, in any tokens. Only such documents count. Each length is in a model's own tokens.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from zoo.comparison.caveats import Caveat
from zoo.comparison.comparable import Key, differing
from zoo.comparison.formatting import kind_text
from zoo.comparison.frame import KIND, Results, Series
from zoo.comparison.runs import RunInfo
from zoo.errors import InputError
from zoo.evaluation.interval import interval_of_ratio
from zoo.evaluation.measurement import Measurement, Units

UNKNOWN = "not known"
NOT_STORED = "the scores of each document are not stored"


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
    results, left_out = on_common_documents(Results.of(readings))
    if results.rows.empty:
        why = "; ".join(one.text for one in left_out)
        raise InputError(f"these models have no scores in common ({why}); do it with: {remedy}")
    facts = {one.label: _facts(one.runs[0]) for one in readings}
    differ = differing([*facts.items()])
    named = ", ".join(one.key[1] for one in differ) or "nothing"
    caveats = [Caveat("models", f"models are compared, not encodings: they differ in {named}")]
    caveats += [Caveat("differs", str(one).removeprefix("model ")) for one in differ]
    if unknown := [label for label, own in facts.items() if own["model", "trained on"] == UNKNOWN]:
        caveats.append(Caveat("seen", f"{', '.join(unknown)} may have been trained on this text"))
    first, apart = facts[readings[0].label], {one.key for one in differ}
    about = [(key[1], value) for key, value in first.items() if key not in apart]
    return results, (*caveats, _bytes_per_token(results), *left_out), about


def _readings(runs: Sequence[RunInfo]) -> Iterator[Series]:
    """A curve for each model as it was trained, and for each change of its encoding after training. The
    digest of its targets is that of the text, for any tokenizer."""
    names = [Path(run.path).resolve().name for run in runs]
    for run, name in zip(runs, names, strict=True):
        own = name if names.count(name) == 1 else run.path
        kept: dict[str, dict[tuple, Measurement]] = {}
        # Of several measurements, the one on the most targets, and with the start token.
        for one in sorted(run.measurements, key=lambda one: (one.targets.count, _start_token(one))):
            corpus = str((run.card.get("fingerprint") or {}).get("corpus"))[:12]
            targets = one.targets.model_copy(update={"digest": one.targets.text or corpus})
            of_change = kept.setdefault(one.encoding if one.changed else "", {})
            # Models share documents; blocks are of tokens, which each model has its own of.
            rows = [row.model_copy(update={"blocks": None}) for row in one.rows]
            changes = {"targets": targets, "rows": rows}
            of_change[one.kind[:2], targets.digest] = one.model_copy(update=changes)
        for changed, measured in sorted(kept.items()):
            label, (first, *_) = f"{own} ({changed})" if changed else own, measured.values()
            yield Series(label, (replace(run, measurements=tuple(measured.values())),), first.changed)


def on_common_documents(results: Results) -> tuple[Results, list[Caveat]]:
    """The rows of the texts that several models have read, in bits per byte of the documents that all of
    these scored in the same bytes; and caveats of the rest."""
    import pandas as pd

    rows, units = results.rows, {i: own for i, own in results.units.items() if own.bytes is not None}
    # Bins of one window need not have the same bytes.
    rows = rows[(rows["axis"] == "length") & ((rows["measure"] == "bits_per_byte") | rows["note"].notna())]
    kept, narrowed, left_out = [], {}, []
    for kind, own in rows.groupby(KIND, sort=False):
        first = {row.encoding: units[row.Index] for row in own[::-1].itertuples() if row.Index in units}
        own = own[own["encoding"].isin(first)].copy()
        if len(first) < 2:
            why = f"was measured on the text {kind[2]} for {', '.join(first)} alone, and is left out"
            left_out += [Caveat("left out", f"{kind_text(kind)} {why}")] * len(first)
            continue
        sizes = [dict(zip(one.documents, one.bytes, strict=True)) for one in first.values()]
        same = {doc for doc, size in sizes[0].items() if size and all(one.get(doc) == size for one in sizes)}
        if (most := max(map(len, sizes))) > len(same):
            why = f"{len(same)} of up to {most} documents were scored by all in the same bytes"
            why += "; with a larger evaluate.max_tokens more are scored whole"
            left_out.append(Caveat("left out", f"{kind_text(kind)}: {why}"))
        if not same:
            continue
        digest = hashlib.sha256(repr(sorted((doc, sizes[0][doc]) for doc in same)).encode())
        own["targets"] = digest.hexdigest()[:12]
        for index in own.index[own["note"].isna()]:
            if index in units:
                narrowed[index], numbers = _narrowed(units[index], same)
                own.loc[index, [*numbers]] = [*numbers.values()]
            else:
                own.loc[index, ["note", "value"]] = NOT_STORED, math.nan
        kept.append(own)
    return replace(results, rows=pd.concat(kept) if kept else rows[:0], units=narrowed), left_out


def _narrowed(units: Units, documents: set[int]) -> tuple[Units, dict[str, float]]:
    """The scores of these documents alone, and the numbers of a row that follow from them."""
    places = [place for place, document in enumerate(units.documents) if document in documents]
    kept = {name: [column[place] for place in places] for name, column in units.columns().items()}
    bits = np.array(kept["nats"], dtype=np.float64) / math.log(2)
    low, high = interval_of_ratio(bits, np.array(kept["bytes"]))
    numbers = {
        "value": bits.sum() / sum(kept["bytes"]), "low": math.nan if low is None else max(low, 0.0),
        "high": math.nan if high is None else high, "documents": len(bits), "tokens": sum(kept["tokens"]),
    }  # fmt: skip
    return Units(**kept), numbers


def _start_token(one: Measurement) -> str:
    return one.targets.start_token or ""


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
        "parameters": UNKNOWN if total is None else f"{total:,}",
        "encoding": str(run.measurements[0].encoding),
        "trained length": f"{run.recipe['data']['sequence_length']:,}",
        "tokenizer": str(fingerprint.get("tokenizer") or UNKNOWN)[:12],
        "trained on": str(corpus or UNKNOWN)[:12],
        "tokens seen": UNKNOWN if seen is None else f"{seen:,}",
        "start token": max(map(_start_token, run.measurements)) or "none",
    }
    return {("model", key): value for key, value in facts.items()}


def _bytes_per_token(results: Results) -> Caveat:
    """The amount of text that a length is to each model."""
    units: dict[str, Units] = {}
    for row in results.rows.itertuples():
        if row.Index in results.units:
            units.setdefault(row.encoding, results.units[row.Index])
    parts = [f"{sum(own.bytes) / max(sum(own.tokens), 1):.2f} for {label}" for label, own in units.items()]
    text = f"a length is in each model's own tokens; bytes per token: {', '.join(parts)}"
    return Caveat("lengths", text)
