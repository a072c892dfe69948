"""Whether runs may stand beside each other: they differ in the encoding and the seed, and in nothing else,
and the same targets were scored."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zoo import registry
from zoo.errors import shorten
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
from zoo.recipe.sections import MAX_TOKENS
from zoo.reports.commands import changes, evaluate_command, lengths_to_ask, setting, settings
from zoo.reports.compared_run import Run
from zoo.reports.formatting import protocol_text
from zoo.reports.report import Caveat

ON_THE_CARD = (
    "task", "fingerprint.corpus", "fingerprint.tokenizer", "steps", "tokens_seen", "finished",
    "parameters.other", "init_from.steps", "init_from.tokens_seen", "init_from.sha256",
)  # fmt: skip
NOT_SET = "not set"
NAMED = 4
"""Runs that a message names one by one; of more that agree only the number, where the others are named."""

Key = tuple[str, str]
"""Where it stands (`recipe` or `card`), and the dotted key."""


@dataclass(frozen=True)
class KeyDifference:
    """A key at which runs differ: each value, and the runs that have it."""

    key: Key
    values: tuple[tuple[Any, tuple[str, ...]], ...]

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
    on_the_card = {key: card[key] for key in ON_THE_CARD if key in card}
    # The encodings of plugins are the same ones only where their code is.
    on_the_card |= {f"code.{one.get('name')}": one.get("sha256") for one in run.card.get("code_source") or ()}
    return recipe | {("card", key): value for key, value in on_the_card.items()}


def is_of_the_encoding(key: Key) -> bool:
    return is_among(key[1], (ENCODING,)) or key[1].startswith("code.")


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
    """Values with the runs that have them: `0.001 in runs/a; 0.003 in the other 5`."""
    *fewer, (value, runs) = sorted(values, key=lambda one: len(one[1]))
    who = f"the other {len(runs)}" if fewer and len(runs) > NAMED else ", ".join(runs)
    parts = [f"{value_as_text(value)} in {', '.join(runs)}" for value, runs in fewer]
    return "; ".join([*parts, f"{value_as_text(value)} in {who}"])


def value_as_text(value: Any, limit: int = 60) -> str:
    """A value as a message has it, cut to a number of characters; of a digest the beginning."""
    if isinstance(value, str):
        is_digest = len(value) >= 40 and not set(value[:40]) - set("0123456789abcdef")
        return value[:12] + value[40:] * (len(value) < 64) if is_digest else shorten(value, limit) or "''"
    return shorten(json.dumps(value, default=str), limit)


def differences(runs: Sequence[Run]) -> list[KeyDifference | str]:
    """Why runs are not comparable; empty where they are."""
    keys = differing([(run.path, facts(run)) for run in runs])
    twice = [
        f"the same encoding and seed twice ({group[0].label}, seed {group[0].seed}): "
        f"{', '.join(run.path for run in group)}; leave out all but one"
        for group in duplicates(runs)
    ]
    of_others = [one for one in keys if not is_of_the_encoding(one.key)]
    return [*of_others, *on_common_targets(runs)[1], *twice]


def duplicates(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs of one encoding with the same seed: one measurement done twice, and no two seeds."""
    same: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        same[f"{run.seed} {as_text(facts(run))}"].append(run)
    return [group for group in same.values() if len(group) > 1]


def as_text(known: dict[Key, Any]) -> str:
    """The same text for the same keys and values."""
    return json.dumps(sorted((key, json.dumps(value)) for key, value in known.items()))


def changes_on_resume(runs: Iterable[Run]) -> list[str]:
    """Of each run that was resumed in another way than it began, what its card tells of that.

    When it was validated, and how long it was to be, has changed no weight of its last checkpoint.
    """
    found = []
    for run in runs:
        noted = [one for one in run.card.get("changed_on_resume") or () if one["step"] < run.card["steps"]]
        by_rounding = [one for one in noted if changes_rounding(one["key"]) or one["key"] == "device"]
        by_code = [one for one in noted if one["key"] != "device" and not is_recorded_on_resume(one["key"])]
        for group, said in (
            (by_rounding, "its weights are those of a straight run but for rounding and random draws"),
            (by_code, "it was trained by more than one version of the code"),
        ):
            parts = [
                f"{one['key']} from {value_as_text(one['from'])} to {value_as_text(one['to'])} "
                f"at step {one['step']}"
                for one in group
            ]
            if parts:
                found.append(f"{run.path}: changed when it was resumed: {', '.join(parts)}: {said}")
    return found


def on_common_targets(runs: Sequence[Run]) -> tuple[list[Run], list[str], list[Caveat]]:
    """Of each protocol with its parameters the measurements on those targets that all of its runs scored, the
    most of them where there are several.

    Returns: the runs with these; the protocols of which no targets are common, which makes runs not
    comparable; and what was left out.
    """
    found: dict[tuple[str, str], dict[tuple[str, int], dict[str, None]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for run in runs:
        for one in run.measurements:
            if any(row.note is None for row in one.rows):
                found[one.kind[:2]][one.targets.digest, one.targets.count][run.path] = None
    dropped, differences, caveats = set(), [], []
    for kind, by_targets in found.items():
        everyone = {path for paths in by_targets.values() for path in paths}
        common = [targets for targets, paths in by_targets.items() if everyone == set(paths)]
        named = protocol_text(kind[0], json.loads(kind[1]))
        if not common:
            values = [
                (f"{count:,} targets ({digest})", [*paths]) for (digest, count), paths in by_targets.items()
            ]
            said = f"{named}: other targets were scored: {groups_as_text(values)}"
            differences.append(f"{said}; {_remedy(runs, kind)}")
            continue
        kept = max(common, key=lambda one: one[1])
        for digest, count in [one for one in by_targets if one != kept]:
            dropped.add((*kind, digest))
            paths = ", ".join(by_targets[digest, count])
            caveats.append(
                Caveat(f"{named}: measurements of {paths} on {count:,} targets ({digest}) are left out")
            )
    narrowed = [
        replace(run, measurements=tuple(one for one in run.measurements if one.kind not in dropped))
        for run in runs
    ]
    return narrowed, differences, caveats


def _remedy(runs: Sequence[Run], kind: tuple[str, str]) -> str:
    """Why targets differ, and the commands after which they do not."""
    of_kind = [(run, one) for run in runs for one in run.measurements if one.kind[:2] == kind]
    protocol = registry.protocols.all().get(kind[0])
    key = "samples" if protocol is not None and protocol.unit == "examples" else "max_tokens"
    own = (setting(run.recipe, key) or MAX_TOKENS for run, _ in of_kind)
    chosen = sorted({one for one in own if isinstance(one, int)})
    same = (f"evaluate.{key}={chosen[-1]}",) if len(chosen) > 1 else ()
    asked: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for run, one in of_kind:
        asked[*settings(run.recipe, one.parameters), *same, *changes(one.changed)][run.path] = None
    lengths = {row.length for _, one in of_kind for row in one.rows if row.note is None}
    ask = lengths_to_ask(of_kind[0][1].parameters, lengths)
    commands = [evaluate_command(paths, [kind[0]], ask, sets) for sets, paths in asked.items()]
    cause = f"the recipes differ in evaluate.{key}" if same else f"evaluated with another evaluate.{key}"
    return f"{cause}; measure them again with: {'; '.join(commands)}"
