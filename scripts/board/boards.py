"""The boards as tables: decoders on text, decoders on tasks, and encoders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import pandas as pd

from board.floors import DESCRIPTIONS
from board.measured import REFERENCE, SHOWN, Measured, read_measured, stored_name
from board.scores import (
    Board,
    Floors,
    floors_by_length,
    highest,
    learned_seeds,
    loss_board,
    read_floors,
    seed_scores,
    seed_spread,
    task_board,
)
from board.text import DASH, table
from results import Study
from zoo.comparison.formatting import number
from zoo.comparison.statistics import NATS_LOST
from zoo.figures.style import HUES

COSTS = Path(__file__).resolve().parents[1] / "results" / "costs.json"
USED = ("rope", "alibi", "t5", "none")
"""The encodings of most released models; they have a row in the README."""
NEAR, FAR = 4, 32
"""The multiples of the trained length at which the change of the loss has a column."""
BEST = 5
"""Encodings at the head of a board that are shown with the most used ones."""
BEST_HERE = 3
"""Encodings at the head of a board, and at that of a task, in the figure of the task."""


@dataclass(frozen=True)
class Boards:
    """The boards of the measured studies; `readings` have a page, `others` serve questions, by title."""

    found: Sequence[Measured]
    floors: Floors
    readings: Mapping[str, Measured] = field(default_factory=dict)
    others: Mapping[str, Measured] = field(default_factory=dict)

    @cached_property
    def every(self) -> dict[str, Measured]:
        """All measured studies and readings, by title."""
        return {one.title: one for one in self.found} | dict(self.readings) | dict(self.others)

    def floors_of(self, one: Measured) -> Floors:
        """The floors of a task by measure; those of the study with the same data where it has none."""
        data = one.study.recipe("none", 0).data
        known = (other for other in self.found if other.title in self.floors)
        same = (other.title for other in known if other.study.recipe("none", 0).data == data)
        return self.floors[one.title if one.title in self.floors else next(same)]

    @cached_property
    def families(self) -> dict[str, str]:
        """The family of each encoding."""
        return {name: one.family(name) for one in self.found for name in one.encodings}

    def of(self, kind: str, task: bool) -> list[Measured]:
        return [one for one in self.found if one.kind == kind and one.is_task == task]

    @cached_property
    def tasks(self) -> Board | None:
        return self._tasks("decoder")

    @cached_property
    def encoder_tasks(self) -> Board | None:
        return self._tasks("encoder")

    def _tasks(self, kind: str) -> Board | None:
        """The board of the tasks in which at least half of the encodings are measured."""
        every = self.of(kind, task=True)
        most = max((len(one.encodings) for one in every), default=0)
        kept = [one for one in every if 2 * len(one.encodings) >= most]
        return task_board({one.title: self.scores(one) for one in kept}) if kept else None

    def counted(self, one: Measured) -> Measured:
        """The reading of a task that its score counts; the study itself while the reading is not stored."""
        return self.readings.get(f"{one.study.name}_{one.study.scored.reading}", one)

    def scores(self, one: Measured) -> pd.DataFrame:
        """The score of each seed of a task on the board, and whether it learned the task."""
        found, able = seed_scores(self.counted(one), self.floors), learned_seeds(one)
        pairs = zip(found["encoding"], found["seed"], strict=True)
        return found.assign(learned=[pair in able for pair in pairs])

    @cached_property
    def losses(self) -> dict[str, Board]:
        """The boards of texts, by study."""
        return {one.title: loss_board(one) for one in self.found if not one.is_task}

    @cached_property
    def text(self) -> tuple[Measured, Board] | None:
        """The study of decoders on text with its board."""
        every = self.of("decoder", task=False)
        return (every[0], self.losses[every[0].study.title]) if every else None

    @property
    def of_decoders(self) -> dict[str, Board]:
        """The boards of decoders: text and tasks, as far as they are measured."""
        every = {"text": self.text and self.text[1], "tasks": self.tasks}
        return {name: board for name, board in every.items() if board}

    def decoders(self) -> list[str]:
        """All decoders in the order of the tasks, then in that of text."""
        names = [name for board in reversed(self.of_decoders.values()) for name in board.values]
        others = (name for one in self.of("decoder", task=True) for name in one.encodings)
        return list(dict.fromkeys([*names, *others]))

    def best(self, study: str) -> list[str]:
        """The best encodings of the board that a study belongs to."""
        encoders = any(one.study.name == study for one in self.of("encoder", task=True))
        board = self.losses.get(study) or (self.encoder_tasks if encoders else self.tasks)
        return [*board.values][:BEST] if board else []

    def shown(self, one: Measured) -> list[str]:
        """The encodings in the figure of a study: all of a few, else the most used, and the best of its board
        and of a task; each has a hue of its own on text."""
        if len(one.encodings) <= len(HUES):
            return one.encodings
        best = self.best(one.title)
        if one.is_task:
            beyond = one.rows[(one.rows["measure"] == one.measure) & (one.rows["length"] > one.trained)]
            best = [*best[:BEST_HERE], *beyond.groupby("name")["value"].mean().nlargest(BEST_HERE).index]
        else:
            best = [name for name in best if name not in SHOWN][: len(HUES) - len(SHOWN) + 1]
        return [name for name in one.encodings if name in best or name in SHOWN]

    def matter(self) -> set[str]:
        """The most used encodings, and the best on tasks and on text."""
        return {*SHOWN, *(name for board in self.of_decoders.values() for name in [*board.values][:BEST])}

    def readme(self) -> str:
        """The best two of each board and the most used four encodings, in the order of text."""
        text, tasks = self.text[1], self.tasks
        names = [*USED]
        for board in (text, tasks):
            names += [name for name in board.values if name not in names and "," not in name][:2]
        rows = []
        for name in sorted(names, key=[*text.values, *tasks.values].index):
            first, change = self.text[0].at(name, 1), self.text[0].change(name, NEAR)
            score = tasks.values.get(name)
            cells = [
                f"`{name}`",
                number(first["mean"]) if first is not None else "",
                change.plus_minus() if change else "",
                _share(score.value) if score else "",
                cost(name),
                self.families[name],
            ]
            rows.append([cell or DASH for cell in cells])
        return table(["encoding", "text", f"change at {NEAR}x", "tasks", "step time", "family"], rows)

    def summary(self) -> str:
        """The table of all decoders; without places of a board that has few seeds."""
        placed = {f"rank, {name}": board for name, board in self.of_decoders.items() if board.places()}
        rows = []
        for name in self.decoders():
            cells = [name]
            cells += [board.place(name) for board in placed.values()]
            cells.append(self.parameters(name))
            cells += self._text_cells(name)
            if self.tasks and name in self.tasks.values:
                learned, count = self.tasks.learned(name)
                cells += [self.tasks.values[name].text(_share), f"{learned} of {count}"]
            else:
                cells += ["", ""]
            cells.append(cost(name))
            rows.append([cell or DASH for cell in cells])
        heads = ["encoding", *placed, "parameters", "text 1x", f"change at {NEAR}x", f"change at {FAR}x",
                 "tasks", "seeds learned", "step time"]  # fmt: skip
        return table(heads, rows)

    def spread_table(self) -> str:
        """The deviation over seeds of the loss on text, from the encodings that have several."""
        one, board = self.text
        if not board.spread:
            return ""
        spreads = {"1x": seed_spread(one.further, [one.trained]), "mean beyond 1x": board.spread}
        rows = [
            [name, f"{own.sd:.4f}", str(own.freedom), number(own.margin())] for name, own in spreads.items()
        ]
        return table(["loss", "deviation", "degrees of freedom", "95 % margin of a difference"], rows)

    def _text_cells(self, name: str) -> list[str]:
        if not self.text or (first := self.text[0].at(name, 1)) is None:
            return [""] * 3
        changes = [self.text[0].change(name, factor) for factor in (NEAR, FAR)]
        return [number(first["mean"]), *(one.plus_minus() if one else "" for one in changes)]

    def parameters(self, name: str) -> str:
        """The parameters relative to those of `none`: of the model of text, and in brackets of the tasks."""
        models = [
            every[0].parameters for every in (self.of("decoder", False), self.of("decoder", True)) if every
        ]
        ratios = [f"{one[name] / one['none']:.2f}" if {name, "none"} <= one.keys() else "" for one in models]
        return " ".join([*ratios[:1], *(f"({one})" for one in ratios[1:] if one)]).strip()

    def text_table(self, one: Measured) -> str:
        """The board of a text study."""
        board, rows = self.losses[one.title], []
        places = bool(board.places())
        lengths = [length for length in one.study.lengths if length > one.trained]
        sliding = "sliding" in one.study.protocols
        for name, value in board.values.items():
            own = one.losses(name)
            trained = own.get(one.trained)
            changes = [own[at].less(trained).plus_minus() if trained and at in own else "" for at in lengths]
            first = trained.estimate().text(number) if trained else ""
            cells = [
                *[board.place(name)] * places,
                name,
                value.text(number) if value else "",
                first,
            ]
            rows.append(
                [cell or DASH for cell in [*cells, *changes, *([effective_length(one, name)] * sliding)]]
            )
        factors = [f"{length / one.trained:g}x" for length in lengths]
        heads = [
            *["rank"] * places,
            "encoding",
            "mean beyond 1x",
            "1x",
            *(f"change at {factor}" for factor in factors),
        ]
        return table([*heads, *(["effective length"] * sliding)], rows)

    def task_table(self, kind: str) -> str:
        """The board of the tasks of decoders or encoders."""
        board, rows = self.tasks if kind == "decoder" else self.encoder_tasks, []
        names = [*board.values, *(name for one in self.of(kind, True) for name in one.encodings)]
        for name in dict.fromkeys(names):
            cells = [board.place(name)]
            cells += [board.place_without_a_task(name)] * bool(board.without) + [name]
            if name in board.values:
                learned, count = board.learned(name)
                able = board.score_of_learned(name)
                cells += [
                    board.values[name].text(_share),
                    f"{learned} of {count}",
                    _share(able) if learned else "",
                ]
            else:
                cells += ["", "", ""]
            for task in board.seeds:
                learned, count = board.learned(name, task)
                cells.append(f"{_share(board.score(name, task))} ({learned} of {count})" if count else "")
            rows.append([cell or DASH for cell in cells])
        heads = [
            "rank",
            *["without a task"] * bool(board.without),
            "encoding",
            "score",
            "seeds learned",
            "of those",
        ]
        return table([*heads, *board.seeds], rows)

    def floor_table(self, kind: str) -> str:
        """The floor of each task at each length, with its strategy."""
        rows = []
        for one in map(self.counted, self.of(kind, True)):
            asked = self.floors, one.title, one.measure
            lengths = one.study.scored.lengths or one.study.lengths
            names = dict.fromkeys(highest(*asked, length)[1] for length in lengths)
            cells = floors_by_length(*asked, lengths)
            rows.append([one.title, cells, "; ".join(DESCRIPTIONS[name] for name in names)])
        return table(["task", "floor by length in tokens", "strategy"], rows)


def read_boards(studies: Sequence[Study], stored: Path) -> Boards:
    """The boards of the stored entries of the studies of the leaderboard, and the studies of questions."""
    found = [one for study in studies if study.leaderboard and (one := read_measured(study, stored))]
    pages = [page for one in found for page in one.study.pages[1:]]
    readings = {page.title: one for page in pages if (one := read_measured(page, stored))}
    others = {
        study.title: one
        for study in studies
        if not study.leaderboard and not study.grid and (one := read_measured(study, stored, fewest=1))
    }
    for study in (one.study for one in found if one.title == "text"):
        rope = replace(study, encodings={0: [REFERENCE]})
        if one := read_measured(rope, stored, "text_extended", changed=True, fewest=1):
            others[one.title] = one
    return Boards(found, read_floors(stored), readings, others)


def effective_length(one: Measured, name: str) -> str:
    """The longest tested length up to which the loss under `sliding` is kept; of seeds that differ, all."""
    losses = one.measured(name, "sliding", "loss_nats").pivot(index="length", columns="seed", values="value")
    losses = losses.reindex(one.study.lengths)
    if losses.empty or losses.loc[one.trained].isna().any():
        return ""

    def kept(loss: Mapping[int, float]) -> str:
        lost = [*loss.index[~(loss <= loss[one.trained] + NATS_LOST)]]
        return f"{max(loss.index[loss.index < lost[0]])}" if lost else f"≥ {max(loss.index)}"

    each = [kept(losses[seed]) for seed in losses]
    return kept(losses.mean(axis=1, skipna=False)) + f" ({', '.join(each)})" * (len({*each}) > 1)


def cost(name: str) -> str:
    """The time of a training step relative to `none`; empty where it is not measured."""
    return f"{costs()[stored_name(name)]['time']:.2f}" if stored_name(name) in costs() else ""


@cache
def costs() -> dict[str, dict[str, float]]:
    return {row["name"]: row for row in json.loads(COSTS.read_text())["rows"] if row.get("time")}


def _share(value: float) -> str:
    return f"{value:.2f}"
