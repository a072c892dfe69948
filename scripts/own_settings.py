"""Write the studies in which each encoding has its own setting: `scripts/studies/4N_own_TASK.yaml`.

    python scripts/own_settings.py
    zoo sweep scripts/studies/4*.yaml --store scripts/results --nice

The rule: the learning rate with the smallest validation loss of a seed that no page shows (`rate_TASK`,
complete grids alone), and three times the steps where fewer than nine tenths of that seed's answers at the
trained length are right. Encodings whose own setting is the common one are not trained again: their entries
are those of TASK.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

import results
from board.measured import LEARNED
from board.settings import read_grid

PREFIX = "rate_"
LONGER = 3
"""How many times the common steps an encoding gets that has not learned the task in them."""


def own_settings(study: results.Study, stored: Path) -> dict[str, list[str]]:
    """The changes of each encoding's recipe by the rule; empty while the grid is incomplete."""
    grid = read_grid(study, stored)
    if len(grid) < len(study.entries(stored)):
        return {}
    best = grid.loc[grid.groupby("encoding", sort=False)["loss"].idxmin()].itertuples(index=False)
    steps = study.recipe("none", 100).trainer.max_steps
    longer = f"trainer.max_steps={LONGER * steps}"
    return {one.encoding: [*one.setting, *[longer] * (one.score < LEARNED)] for one in best}


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    files = {file.stem.partition("_")[2]: file for file in sorted(results.STUDIES.glob("[0-9]*.yaml"))}
    studies = {study.name: study for study in results.read_studies(results.STUDIES)}
    for study in studies.values():
        task = studies.get(study.name.removeprefix(PREFIX), study)
        if task is study or not (chosen := own_settings(study, results.OUT)):
            continue
        common = next(change for change in task.set if change.startswith("optimizer.lr="))
        rate = float(common.partition("=")[2])
        other = {
            name: changes
            for name, changes in chosen.items()
            if len(changes) > 1 or float(changes[0].partition("=")[2]) != rate
        }
        content = {
            "extends": files[task.name].name,
            "encodings": [*other],
            "set": [change for change in task.set if change != common],
            "own": {name: [*task.own.get(name, []), *changes] for name, changes in other.items()},
            "page": {"leaderboard": False},
        }
        file = results.STUDIES / f"4{files[study.name].name[1]}_own_{task.name}.yaml"
        head = f"# {task.name} with each encoding's own setting; written by scripts/own_settings.py.\n"
        text = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=110)
        file.write_text(head + text)
        longer = sum(len(changes) > 1 for changes in other.values())
        sys.stdout.write(f"{file}: {len(other)} encodings with another setting, {longer} with more steps\n")


if __name__ == "__main__":
    main()
