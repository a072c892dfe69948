"""The boards as tables: decoders on text, decoders on tasks, and encoders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import pandas as pd

from board.floors import DESCRIPTIONS, Floors, highest, read_floors
from board.measured import REFERENCE, Measured, read_measured, stored_name
from results import Study
from zoo.comparison.formatting import number
from zoo.comparison.ranking import Ranking, of_scores, seed_scores, span
from zoo.comparison.statistics import NATS_LOST
from zoo.figures.style import FIRST, HUES
from zoo.reports.tables import beyond_cells
from zoo.reports.text import markdown_table

COSTS = Path(__file__).resolve().parents[1] / "results" / "costs.json"
USED = ("rope", "alibi", "t5", "none")
"""The encodings of most released models; they have a row in the README."""
NEAR, FAR = 4, 32
"""The multiples of the trained length at which the change of the loss has a column."""
BEST = 5
"""Encodings at the head of a board that are shown with the most used ones."""
BEST_HERE = 3
"""Encodings at the head of a board, and at that of a task, in the figure of the task."""


def share(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.2f}"


@dataclass(frozen=True)
class TaskBoard:
    """Tasks: `scores` has columns task, encoding, seed, score and answers, the share of whole answers that
    are right at the trained length."""

    scores: pd.DataFrame

    @cached_property
    def ranking(self) -> Ranking:
        return of_scores(self.scores)

    @property
    def tasks(self) -> list[str]:
        return [*self.scores["task"].unique()]

    @cached_property
    def without(self) -> dict[str, str]:
        """The range of ranks if any one task is left out; with few seeds, of places in the order."""
        complete, found = self.scores[self.scores["encoding"].isin(self.ranking.values)], []
        for task in self.tasks if len(self.tasks) > 1 else ():
            left = of_scores(complete[complete["task"] != task])
            order = pd.Series({name: one.value for name, one in left.values.items()})
            places = order.rank(ascending=False, method="min").astype(int)
            found.append(left.intervals or {name: (place, place) for name, place in places.items()})
        ends = {name: [own[name] for own in found] for name in self.ranking.values if found}
        return {
            name: span(min(low for low, _ in own), max(high for _, high in own)) for name, own in ends.items()
        }

    def answers(self, name: str, task: str = "") -> str:
        """The mean share of whole answers at the trained length in a task, or in all; empty without any."""
        return share(self._own(name, task)["answers"].mean())

    def score(self, name: str, task: str) -> float:
        return self._own(name, task)["score"].mean()

    def _own(self, name: str, task: str = "") -> pd.DataFrame:
        rows = self.scores
        return rows[(rows["encoding"] == name) & ((rows["task"] == task) | (not task))]

    def table(self, names: Sequence[str]) -> str:
        rows = []
        for name in dict.fromkeys([*self.ranking.values, *names]):
            cells = [self.ranking.rank(name), *[self.without.get(name, "")] * bool(self.without), name]
            if one := self.ranking.values.get(name):
                cells += [one.text(share), self.answers(name)]
            else:
                cells += [""] * 2
            for task in self.tasks:
                answers = self.answers(name, task)
                cells.append(f"{share(self.score(name, task))} ({answers})" if answers else "")
            rows.append(cells)
        heads = ["rank", *["without a task"] * bool(self.without), "encoding", "score", "answers at 1x"]
        return markdown_table([*heads, *self.tasks], rows)


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

    def floors_of(self, one: Measured) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """The floors of a task by measure; those of the study with the same data where it has none."""
        data = one.study.recipe("none", 0).data
        known = (other for other in self.found if other.title in self.floors)
        same = (other.title for other in known if other.study.recipe("none", 0).data == data)
        return self.floors[one.title if one.title in self.floors else next(same)]

    @cached_property
    def families(self) -> dict[str, str]:
        """The family of each encoding."""
        return {name: own for one in self.found for name, own in one.families.items()}

    def of(self, kind: str, task: bool) -> list[Measured]:
        return [one for one in self.found if one.kind == kind and one.is_task == task]

    @cached_property
    def tasks(self) -> TaskBoard | None:
        return self._tasks("decoder")

    @cached_property
    def encoder_tasks(self) -> TaskBoard | None:
        return self._tasks("encoder")

    def _tasks(self, kind: str) -> TaskBoard | None:
        """The board of the tasks in which at least half of the encodings are measured."""
        every = self.of(kind, task=True)
        most = max((len(one.encodings) for one in every), default=0)
        kept = [self.scores(one) for one in every if 2 * len(one.encodings) >= most]
        return TaskBoard(pd.concat(kept, ignore_index=True)) if kept else None

    def counted(self, one: Measured) -> Measured:
        """The reading of a task that its score counts; the study itself while the reading is not stored."""
        return self.readings.get(f"{one.study.name}_{one.study.scored.reading}", one)

    def scores(self, one: Measured, floors: str = "") -> pd.DataFrame:
        """The score of each seed of a task on the board, and its whole answers at the trained length.

        Args:
            floors: the title whose floors count; by default its own.
        """
        counted, whole = self.counted(one), one.rows
        lengths = [at for at in counted.rows["length"].unique() if at > counted.trained]
        lengths = counted.study.scored.lengths or lengths
        floors = {at: highest(self.floors, floors or counted.title, counted.measure, at)[0] for at in lengths}
        found = seed_scores(counted.rows[counted.rows["measure"] == counted.measure], floors)
        whole = whole[(whole["measure"] == "accuracy") & (whole["length"] == one.trained)]
        whole = whole[["encoding", "seed", "value"]].rename(columns={"value": "answers"})
        return found.merge(whole, how="left").assign(task=one.title)

    @property
    def text(self) -> Measured | None:
        """The study of decoders on text."""
        return next(iter(self.of("decoder", task=False)), None)

    @property
    def of_decoders(self) -> dict[str, Ranking]:
        """The rankings of decoders: text and tasks, as far as they are measured."""
        every = {"text": self.text, "tasks": self.tasks}
        return {name: one.ranking for name, one in every.items() if one}

    def decoders(self) -> list[str]:
        """All decoders in the order of the tasks, then in that of text."""
        names = [name for ranking in reversed(self.of_decoders.values()) for name in ranking.values]
        others = (name for one in self.of("decoder", task=True) for name in one.encodings)
        return list(dict.fromkeys([*names, *others]))

    def shown(self, one: Measured) -> list[str]:
        """The encodings in the figure of a study: all of a few, else the most used, and the best of its board
        and of a task; each has a hue of its own on text."""
        if len(one.encodings) <= len(HUES):
            return one.encodings
        tasks = self.encoder_tasks if one.kind == "encoder" else self.tasks
        board = one if not one.is_task and one.title in {own.title for own in self.found} else tasks
        best = [*board.ranking.values][:BEST] if board else []
        if one.is_task:
            beyond = one.rows[(one.rows["measure"] == one.measure) & (one.rows["length"] > one.trained)]
            best = [*best[:BEST_HERE], *beyond.groupby("encoding")["value"].mean().nlargest(BEST_HERE).index]
        else:
            best = [name for name in best if name not in FIRST][: len(HUES) - len(FIRST) + 1]
        return [name for name in one.encodings if name in best or name in FIRST]

    def matter(self) -> set[str]:
        """The most used encodings, and the best on tasks and on text."""
        return {*FIRST, *(name for one in self.of_decoders.values() for name in [*one.values][:BEST])}

    def readme(self) -> str:
        """The best two of each board and the most used four encodings, in the order of text."""
        text, tasks = self.of_decoders.values()
        names = [*USED]
        for ranking in (text, tasks):
            names += [name for name in ranking.values if name not in names][:2]
        rows = []
        for name in sorted(names, key=[*text.values, *tasks.values].index):
            score = share(tasks.values[name].value) if name in tasks.values else ""
            rows.append([f"`{name}`", *self._text_cells(name, NEAR), score, cost(name), self.families[name]])
        return markdown_table(
            ["encoding", "text", f"change at {NEAR}x", "tasks", "step time", "family"], rows
        )

    def summary(self) -> str:
        """The table of all decoders; without ranks of a board that has few seeds."""
        ranked = {f"rank, {name}": one for name, one in self.of_decoders.items() if one.intervals}
        rows = []
        for name in self.decoders():
            scored = self.tasks and self.tasks.ranking.values.get(name)
            rows.append([
                name, *(one.rank(name) for one in ranked.values()), self.parameters(name),
                *self._text_cells(name, NEAR, FAR), scored.text(share) if scored else "",
                self.tasks.answers(name) if scored else "", cost(name),
            ])  # fmt: skip
        heads = ["encoding", *ranked, "parameters", "text 1x", *(f"change at {at}x" for at in (NEAR, FAR))]
        return markdown_table([*heads, "tasks", "answers at 1x", "step time"], rows)

    def _text_cells(self, name: str, *factors: int) -> list[str]:
        if not self.text or (first := self.text.at(name, 1)) is None:
            return [""] * (1 + len(factors))
        return [number(first["mean"]), *(self.text.change(name, factor).plus_minus() for factor in factors)]

    def parameters(self, name: str) -> str:
        """The parameters relative to those of `none`: of the model of text, and in brackets of the tasks."""
        models = [
            every[0].parameters for every in (self.of("decoder", False), self.of("decoder", True)) if every
        ]
        ratios = [f"{one[name] / one['none']:.2f}" if {name, "none"} <= one.keys() else "" for one in models]
        return " ".join([*ratios[:1], *(f"({one})" for one in ratios[1:] if one)]).strip()

    def text_table(self, one: Measured) -> str:
        """The board of a text study."""
        ranking = one.ranking
        cells = beyond_cells(one.panel()).loc[[*ranking.values]].drop(columns="to the best")
        cells["rank"] = [ranking.rank(name) for name in cells.index]
        cells.insert(1, "encoding", cells.index)
        if not ranking.intervals:
            cells = cells.drop(columns="rank")
        if "sliding" in one.study.protocols:
            cells["effective length"] = [effective_length(one, name) for name in cells.index]
        return markdown_table(cells, cells.to_numpy())

    def task_table(self, kind: str) -> str:
        """The board of the tasks of decoders or encoders."""
        board = self.tasks if kind == "decoder" else self.encoder_tasks
        return board.table([name for one in self.of(kind, True) for name in one.encodings])

    def floor_table(self, kind: str) -> str:
        """The floor of each task at each length, with its strategy."""
        rows = []
        for one in map(self.counted, self.of(kind, True)):
            asked = self.floors, one.title, one.measure
            lengths = one.study.scored.lengths or one.study.lengths
            found = {length: highest(*asked, length) for length in lengths}
            values = ", ".join(f"{length}: {value:.2f}" for length, (value, _) in found.items())
            names = dict.fromkeys(name for _, name in found.values())
            rows.append([one.title, values, "; ".join(DESCRIPTIONS[name] for name in names)])
        return markdown_table(["task", "floor by length in tokens", "strategy"], rows)


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
    rows = one.rows[(one.rows["encoding"] == name) & (one.rows["protocol"] == "sliding")]
    losses = rows[rows["measure"] == "loss_nats"].pivot(index="length", columns="seed", values="value")
    losses = losses.reindex(one.study.lengths)
    if losses.empty or losses.loc[one.trained].isna().any():
        return ""

    def kept(loss: Mapping[int, float]) -> str:
        lost = [*loss.index[~(loss <= loss[one.trained] + NATS_LOST)]]
        return f"{max(loss.index[loss.index < lost[0]])}" if lost else f"≥ {max(loss.index)}"

    each = [kept(losses[seed]) for seed in losses]
    return kept(losses.mean(axis=1, skipna=False)) + f" ({', '.join(each)})" * (len({*each}) > 1)


def cost(name: str, what: str = "time") -> str:
    """The time or memory of a training step relative to `none`; empty where it is not measured."""
    return share(costs().get(stored_name(name), {}).get(what))


@cache
def costs() -> dict[str, dict[str, float]]:
    return {row["name"]: row for row in json.loads(COSTS.read_text())["rows"] if row.get("time")}
