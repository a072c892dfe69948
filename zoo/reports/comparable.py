"""Whether runs may stand beside each other: they differ in the encoding and the seed, and in nothing else."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.recipe.diff import (
    ACCUMULATE,
    ENCODING,
    changes_rounding,
    flatten,
    is_among,
    is_recorded_on_resume,
    limits_epochs,
    may_differ_between_runs,
)
from zoo.reports.compared_run import Run
from zoo.reports.targets import on_common_targets
from zoo.reports.values import Groups, grouped, groups_as_text, value_as_text

ON_THE_CARD = (
    "task", "fingerprint.corpus", "fingerprint.tokenizer", "steps", "tokens_seen", "finished",
    "parameters.other", "init_from.steps", "init_from.tokens_seen", "init_from.sha256",
)  # fmt: skip
NOT_SET = "not set"

Key = tuple[str, str]
"""Where it stands (`recipe` or `card`), and the dotted key."""


@dataclass(frozen=True)
class KeyDifference:
    """A key at which runs differ: each value, and the runs that have it."""

    key: Key
    values: Groups

    def __str__(self) -> str:
        return f"{' '.join(self.key)}: {groups_as_text(self.values)}"


def facts(run: Run) -> dict[Key, Any]:
    """All that tells a run from another but its seed and how it was computed, the encoding included."""
    recipe = {
        ("recipe", key): value
        for key, value in flatten(run.recipe).items()
        if is_among(key, (ENCODING,)) or not may_differ_between_runs(key)
    }
    if limits_epochs(run.recipe["trainer"]):
        # Counted in parts of batches: where those have another size an epoch is cut to other tokens.
        recipe["recipe", ACCUMULATE] = run.recipe["trainer"][ACCUMULATE.partition(".")[2]]
    card = flatten(run.card)
    # Weights are the same ones by their digest, wherever they lay.
    if card.get("init_from.sha256") is not None or run.recipe.get("init_from") is None:
        recipe.pop(("recipe", "init_from"), None)
    # The encodings of plugins are the same ones only where their code is.
    code = {
        f"code.{source.get('name')}": source.get("sha256")
        for source in run.card.get("code_source") or ()
        if isinstance(source, dict)
    }
    on_the_card = {key: card[key] for key in ON_THE_CARD if key in card} | code
    return recipe | {("card", key): value for key, value in on_the_card.items()}


def is_of_the_encoding(key: Key) -> bool:
    return is_among(key[1], (ENCODING,)) or key[1].startswith("code.")


def differing(named: Sequence[tuple[str, dict[Key, Any]]]) -> list[KeyDifference]:
    """The keys at which mappings differ, with every value."""
    keys = dict.fromkeys(key for _, values in named for key in values)
    found = []
    for key in keys:
        groups = grouped((name, values.get(key, NOT_SET)) for name, values in named)
        if len(groups) > 1:
            found.append(KeyDifference(key, groups))
    return found


def differences(runs: Sequence[Run]) -> list[KeyDifference | str]:
    """Why runs are not comparable; empty where they are."""
    keys = differing([(run.path, facts(run)) for run in runs])
    return [
        *(one for one in keys if not is_of_the_encoding(one.key)), *on_common_targets(runs)[1], *_twice(runs),
    ]  # fmt: skip


def changes_on_resume(runs: Iterable[Run]) -> list[str]:
    """Of each run that was resumed in another way than it began, what its card tells of that.

    When it was validated, and how long it was to be, has changed no weight of its last checkpoint.
    """
    found = []
    for run in runs:
        noted = run.card.get("changed_on_resume") or ()
        noted = [one for one in noted if one["step"] < run.card["steps"]]
        by_rounding = [one for one in noted if changes_rounding(one["key"]) or one["key"] == "device"]
        by_code = [one for one in noted if one["key"] != "device" and not is_recorded_on_resume(one["key"])]
        for group, said in (
            (by_rounding, "its weights are those of a straight run but for rounding and random draws"),
            (by_code, "it was trained by more than one version of the code"),
        ):
            if group:
                changes = (
                    f"{one['key']} from {value_as_text(one['from'])} to {value_as_text(one['to'])} "
                    f"at step {one['step']}"
                    for one in group
                )
                found.append(f"{run.path}: changed when it was resumed: {', '.join(changes)}: {said}")
    return found


def duplicates(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs of one encoding with the same seed: one measurement done twice, and no two seeds."""
    same: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        known = sorted((key, json.dumps(value)) for key, value in facts(run).items())
        same[json.dumps([run.seed, known])].append(run)
    return [group for group in same.values() if len(group) > 1]


def _twice(runs: Sequence[Run]) -> list[str]:
    return [
        f"the same encoding and seed twice ({group[0].label}, seed {group[0].seed}): "
        f"{', '.join(run.path for run in group)}; leave out all but one"
        for group in duplicates(runs)
    ]
