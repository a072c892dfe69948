"""Which targets a comparison is about, where runs were measured on more than one set of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from zoo import registry
from zoo.evaluation.measurement import Measurement
from zoo.reports.commands import changes, evaluate_command, lengths_to_ask, setting, settings
from zoo.reports.compared_run import Run
from zoo.reports.formatting import protocol_text
from zoo.reports.report import Caveat
from zoo.reports.values import groups_as_text


def on_common_targets(runs: Sequence[Run]) -> tuple[list[Run], list[str], list[Caveat]]:
    """Of each protocol with its parameters the measurements on those targets that all of its runs scored, the
    most of them where there are several.

    Returns: the runs with these; the protocols of which no targets are common, which makes runs not
    comparable; and what was left out.
    """
    found: dict[tuple[str, str], dict[tuple[str, int], list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for one in run.measurements:
            if any(row.note is None for row in one.rows):
                found[one.kind[:2]][one.targets.digest, one.targets.count].append(run.path)
    dropped, differences, caveats = set(), [], []
    for kind, by_targets in found.items():
        everyone = {path for paths in by_targets.values() for path in paths}
        common = [targets for targets, paths in by_targets.items() if everyone == set(paths)]
        named = protocol_text(kind[0], json.loads(kind[1]))
        if len(by_targets) > 1 and not common:
            values = [(_name(one), tuple(dict.fromkeys(paths))) for one, paths in by_targets.items()]
            said = f"{named}: other targets were scored: {groups_as_text(values)}"
            differences.append(f"{said}; {_remedy(runs, kind)}")
        for other in [one for one in by_targets if common and one != max(common, key=lambda one: one[1])]:
            dropped.add((*kind, other[0]))
            paths = ", ".join(dict.fromkeys(by_targets[other]))
            caveats.append(Caveat(f"{named}: measurements of {paths} on {_name(other)} are left out"))
    kept = [
        replace(run, measurements=tuple(one for one in run.measurements if one.kind not in dropped))
        for run in runs
    ]
    return kept, differences, caveats


def _name(targets: tuple[str, int]) -> str:
    return f"{targets[1]:,} targets ({targets[0]})"


def _remedy(runs: Sequence[Run], kind: tuple[str, str]) -> str:
    """Why targets differ, and the commands after which they do not."""
    of_kind = [(run, one) for run in runs for one in run.measurements if one.kind[:2] == kind]
    protocol = registry.protocols.all().get(kind[0])
    key = "samples" if protocol is not None and protocol.needs == "examples" else "max_tokens"
    chosen = sorted({own for run, _ in of_kind if isinstance(own := setting(run.recipe, key), int)})
    same = (f"evaluate.{key}={chosen[-1]}",) if len(chosen) > 1 else ()
    asked: dict[tuple[str, ...], list[str]] = {}
    for run, one in of_kind:
        sets = (*settings(run.recipe, one.parameters), *same, *changes(one.changed))
        paths = asked.setdefault(sets, [])
        paths += [run.path] if run.path not in paths else []
    ask = lengths_to_ask(of_kind[0][1].parameters, _lengths(one for _, one in of_kind))
    commands = [evaluate_command(paths, [kind[0]], ask, sets) for sets, paths in asked.items()]
    cause = f"the recipes differ in evaluate.{key}" if same else f"evaluated with another evaluate.{key}"
    return f"{cause}; measure them again with: {'; '.join(commands)}"


def _lengths(measurements: Iterable[Measurement]) -> list[int]:
    return sorted({row.length for one in measurements for row in one.rows if row.note is None})
