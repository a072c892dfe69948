"""Whether runs are comparable: they differ in the encoding and the seed alone, on the same targets."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from zoo.comparison.formatting import kind_text
from zoo.comparison.run_info import RunInfo
from zoo.errors import shorten
from zoo.recipe.diff import ENCODING, flatten, is_among, may_differ_between_runs

ON_THE_CARD = (
    "task", "fingerprint.corpus", "fingerprint.tokenizer", "steps", "tokens_seen", "finished",
    "parameters.other", "init_from.steps", "init_from.tokens_seen", "init_from.sha256",
)  # fmt: skip
NOT_SET = "not set"
NAMED = 4
"""Up to so many runs with one value are named; of more, the first and the number."""

Key = tuple[str, str]
"""`recipe` or `card`, and the dotted key."""


@dataclass(frozen=True)
class KeyDifference:
    """A key at which runs differ: each value with the runs that have it."""

    key: Key
    values: tuple[tuple[Any, tuple[str, ...]], ...]

    def __str__(self) -> str:
        return f"{' '.join(self.key)}: {groups_as_text(self.values)}"


def differences(runs: Sequence[RunInfo]) -> list[KeyDifference | str]:
    """Why runs are not comparable; empty if they are."""
    keys = differing([(run.path, facts(run)) for run in runs])
    twice = [
        f"the same encoding and seed twice ({group[0].label}, seed {group[0].seed}): "
        f"{', '.join(run.path for run in group)}; leave out all but one"
        for group in duplicates(runs)
    ]
    others = [one for one in keys if not is_of_the_encoding(one.key)]
    return [*others, *on_common_targets(runs)[1], *twice]


def facts(run: RunInfo) -> dict[Key, Any]:
    """Every value that distinguishes runs except the seed and how they were computed."""
    recipe = {
        ("recipe", key): value
        for key, value in flatten(run.recipe).items()
        if is_among(key, (ENCODING,)) or not may_differ_between_runs(key)
    }
    # Runs that were tuned by the same grid are as comparable as runs with the same values.
    for key, value in run.grid.items():
        recipe["recipe", key] = f"the best of {json.dumps(value)}"
    card = flatten(run.card)
    # The digest identifies initial weights, wherever their file was.
    if card.get("init_from.sha256") is not None or run.recipe.get("init_from") is None:
        recipe.pop(("recipe", "init_from"), None)
    on_the_card = {key: card[key] for key in ON_THE_CARD if key in card}
    on_the_card |= {f"code.{one.get('name')}": one.get("sha256") for one in run.card.get("code_source") or ()}
    return recipe | {("card", key): value for key, value in on_the_card.items()}


def is_of_the_encoding(key: Key) -> bool:
    return is_among(key[1], (ENCODING,)) or key[1].startswith("code.")


def duplicates(runs: Sequence[RunInfo]) -> list[list[RunInfo]]:
    """Groups of runs with the same encoding and seed."""
    same: dict[str, list[RunInfo]] = defaultdict(list)
    for run in runs:
        known = sorted((key, json.dumps(value)) for key, value in facts(run).items())
        same[f"{run.seed} {known}"].append(run)
    return [group for group in same.values() if len(group) > 1]


def differing(named: Sequence[tuple[str, dict[Key, Any]]]) -> list[KeyDifference]:
    """The keys at which mappings differ, with every value and the names that have it."""
    found = []
    for key in dict.fromkeys(key for _, values in named for key in values):
        groups: dict[str, tuple[Any, list[str]]] = {}
        for name, values in named:
            value = values.get(key, NOT_SET)
            groups.setdefault(json.dumps(value, sort_keys=True, default=str), (value, []))[1].append(name)
        if len(groups) > 1:
            found.append(KeyDifference(key, tuple((value, tuple(own)) for value, own in groups.values())))
    return found


def groups_as_text(values: Sequence[tuple[Any, Sequence[str]]]) -> str:
    """Values with the runs that have them: `0.001 in runs/a; 0.003 in runs/b, runs/c`."""
    parts = []
    for value, runs in sorted(values, key=lambda one: len(one[1])):
        more = f" and {len(runs) - NAMED} others" * (len(runs) > NAMED + 1)
        parts.append(f"{value_as_text(value)} in {', '.join(runs[:NAMED] if more else runs)}{more}")
    return "; ".join(parts)


def value_as_text(value: Any, limit: int = 60) -> str:
    """A value in a message, cut to `limit` characters; the first 12 of a digest."""
    if isinstance(value, str):
        is_digest = len(value) >= 40 and not set(value[:40]) - set("0123456789abcdef")
        return value[:12] + value[40:] * (len(value) < 64) if is_digest else shorten(value, limit) or "''"
    return shorten(json.dumps(value, default=str), limit)


def on_common_targets(runs: Sequence[RunInfo]) -> tuple[list[RunInfo], list[str], list[str]]:
    """Keep, for each protocol with its parameters, the measurements on targets that all of its runs scored;
    of several such sets the largest.

    Returns: the runs with these measurements; the protocols without common targets, which make runs not
    comparable; and the measurements that were left out, as text.
    """
    found = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        for one in run.measurements:
            if any(row.note is None for row in one.rows):
                found[one.kind[:2]][one.targets.digest, one.targets.count][run.path] = None
    dropped, refused, left_out = set(), [], []
    for kind, by_targets in found.items():
        everyone = {path for paths in by_targets.values() for path in paths}
        common = [targets for targets, paths in by_targets.items() if everyone == set(paths)]
        texts = {(digest, count): f"{count:,} targets ({digest})" for digest, count in by_targets}
        if not common:
            groups = groups_as_text([(texts[one], [*own]) for one, own in by_targets.items()])
            refused.append(
                f"{kind_text(kind)}: other targets were scored: {groups}; measure all again with the "
                "same lengths, evaluate.split, evaluate.max_tokens, evaluate.samples and --data"
            )
            continue
        kept = max(common, key=lambda one: one[1])
        for one in (one for one in by_targets if one != kept):
            dropped.add((*kind, one[0]))
            paths = ", ".join(by_targets[one])
            left_out.append(f"{kind_text(kind)}: measurements of {paths} on {texts[one]} are left out")
    narrowed = [
        replace(run, measurements=tuple(one for one in run.measurements if one.kind not in dropped))
        for run in runs
    ]
    return narrowed, refused, left_out
