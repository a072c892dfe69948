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

import pandas as pd

from zoo.comparison.comparable import Key, differing
from zoo.comparison.formatting import kind_text
from zoo.comparison.frame import KIND, Results
from zoo.comparison.run_info import UNKNOWN, RunInfo
from zoo.errors import InputError
from zoo.evaluation.interval import interval_of_ratio
from zoo.evaluation.measurement import Measurement, Units


def models_results(runs: Sequence[RunInfo], remedy: str) -> tuple[Results, list[str], dict[str, str]]:
    """The results of models on the documents that all of them scored in the same bytes; `encoding` is the
    name of the model.

    Args:
        remedy: the command that measures all of them alike.

    Returns: the results, the caveats, and the names and values of what the models have in common.

    Raises:
        InputError: they have no scores on one text in common.
    """
    readings = dict(_readings(runs))
    if len(readings) < 2:
        raise InputError("missing models: zoo compare --models runs/a runs/b")
    results, left_out = on_common_documents(Results.of(readings))
    if results.rows.empty:
        why = "; ".join(left_out) or "documents of text are compared, which were scored by length"
        raise InputError(f"these models have no scores in common ({why}); do it with: {remedy}")
    facts = {label: _facts(run) for label, (run,) in readings.items()}
    differ = differing([*facts.items()])
    named = ", ".join(one.key[1] for one in differ) or "nothing"
    caveats = [f"models are compared, not encodings: they differ in {named}"]
    caveats += [str(one).removeprefix("model ") for one in differ]
    if unknown := [label for label, own in facts.items() if own["model", "trained on"] == UNKNOWN]:
        caveats.append(f"{', '.join(unknown)} may have been trained on this text")
    scored = results.rows[results.rows.index.isin(results.units)].drop_duplicates("encoding")
    units = {label: results.units[index] for index, label in scored["encoding"].items()}
    sizes = [f"{sum(one.bytes) / max(sum(one.tokens), 1):.2f} for {label}" for label, one in units.items()]
    caveats.append(f"a length is in each model's own tokens; bytes per token: {', '.join(sizes)}")
    first, apart = facts[next(iter(readings))], {one.key for one in differ}
    return results, caveats + left_out, {key[1]: text for key, text in first.items() if key not in apart}


def _readings(runs: Sequence[RunInfo]) -> Iterator[tuple[str, list[RunInfo]]]:
    """A curve for each model as it was trained, and for each change of its encoding after training. The
    digest of its targets is that of the text, for any tokenizer."""
    names = [Path(run.path).resolve().name for run in runs]
    for run, name in zip(runs, names, strict=True):
        own = name if names.count(name) == 1 else run.path
        corpus = str((run.card.get("fingerprint") or {}).get("corpus"))[:12]
        kept: dict[str, dict[tuple, Measurement]] = {}
        # Of several measurements, the one on the most targets, and with the start token.
        for one in sorted(run.measurements, key=lambda one: (one.targets.count, _start_token(one))):
            targets = one.targets.model_copy(update={"digest": one.targets.text or corpus})
            # Models share documents; blocks are of tokens, which each model has its own of.
            rows = [row.model_copy(update={"blocks": None}) for row in one.rows]
            of_change = kept.setdefault(one.encoding if one.changed else "", {})
            changes = {"targets": targets, "rows": rows}
            of_change[one.kind[:2], targets.digest] = one.model_copy(update=changes)
        for changed, measured in sorted(kept.items()):
            label = f"{own} ({changed})" if changed else own
            yield label, [replace(run, measurements=tuple(measured.values()))]


def on_common_documents(results: Results) -> tuple[Results, list[str]]:
    """The rows of the texts that several models have read, in bits per byte of the documents that all of
    these scored in the same bytes; and caveats of the rest."""
    rows, units = results.rows, {i: own for i, own in results.units.items() if own.bytes is not None}
    # Bins of one window need not have the same bytes.
    rows = rows[(rows["axis"] == "length") & ((rows["measure"] == "bits_per_byte") | rows["note"].notna())]
    kept, narrowed, left_out = [], {}, []
    for kind, own in rows.groupby(KIND, sort=False):
        first = {row.encoding: units[row.Index] for row in own[::-1].itertuples() if row.Index in units}
        own = own[own["encoding"].isin(first)].copy()
        if len(first) < 2:
            why = f"was measured on the text {kind[2]} for {', '.join(first)} alone, and is left out"
            left_out += [f"{kind_text(kind)} {why}"] * len(first)
            continue
        sizes = [dict(zip(one.documents, one.bytes, strict=True)) for one in first.values()]
        same = {doc for doc, size in sizes[0].items() if size and all(one.get(doc) == size for one in sizes)}
        if (most := max(map(len, sizes))) > len(same):
            left_out.append(
                f"{kind_text(kind)}: {len(same)} of up to {most} documents were scored by all in the same "
                "bytes; with a larger evaluate.max_tokens more are scored whole"
            )
        if not same:
            continue
        digest = hashlib.sha256(repr(sorted((doc, sizes[0][doc]) for doc in same)).encode())
        own["targets"] = digest.hexdigest()[:12]
        for index in own.index[own["note"].isna()]:
            narrowed[index], numbers = _narrowed(units[index], same)
            own.loc[index, [*numbers]] = [*numbers.values()]
        kept.append(own)
    return replace(results, rows=pd.concat(kept) if kept else rows[:0], units=narrowed), left_out


def _narrowed(units: Units, documents: set[int]) -> tuple[Units, dict[str, float]]:
    """The scores of these documents alone, and the numbers of a row that follow from them."""
    kept = pd.DataFrame(units.columns()).query("documents in @documents")
    bits = kept["nats"].astype(float) / math.log(2)
    low, high = interval_of_ratio(bits, kept["bytes"])
    numbers = {
        "value": bits.sum(skipna=False) / kept["bytes"].sum(), "documents": len(kept),
        "low": math.nan if low is None else max(low, 0.0), "high": math.nan if high is None else high,
        "tokens": kept["tokens"].sum(),
    }  # fmt: skip
    return Units(**kept.astype(object).where(kept.notna(), None).to_dict("list")), numbers


def _start_token(one: Measurement) -> str:
    return one.targets.start_token or ""


def _facts(run: RunInfo) -> dict[Key, str]:
    """Facts of a model by which a reader judges its numbers."""
    card = run.card
    imported, fingerprint = card.get("imported") or {}, card.get("fingerprint") or {}
    facts = {
        "from": imported.get("from") or "trained here",
        "architecture": imported.get("architecture") or "the zoo's",
        "size": "{num_layers} layers of width {d_model}, {num_heads} heads".format(**run.recipe["model"]),
        "parameters": _count((card.get("parameters") or {}).get("total")),
        "encoding": run.measurements[0].encoding,
        "trained length": f"{run.recipe['data']['sequence_length']:,}",
        "tokenizer": (fingerprint.get("tokenizer") or UNKNOWN)[:12],
        # The card of an imported model has the corpus that it is scored on.
        "trained on": UNKNOWN if imported else (fingerprint.get("corpus") or UNKNOWN)[:12],
        "tokens seen": _count(card.get("tokens_seen")),
        "start token": max(map(_start_token, run.measurements)) or "none",
    }
    return {("model", key): value for key, value in facts.items()}


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"
