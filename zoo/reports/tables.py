"""The tables of a report, the same for console, Markdown, page and notebook; and its page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from zoo.comparison.findings import findings, limits
from zoo.comparison.formatting import (
    DASH,
    SUPERSCRIPTS,
    count_text,
    display_name,
    number,
    panel_title,
    signed,
    text_path,
)
from zoo.comparison.frame import KIND, MEASURES
from zoo.comparison.paired import FEWEST_SEEDS, RATE, Estimate
from zoo.comparison.ranking import of_scores, seed_scores, span
from zoo.comparison.statistics import NATS_LOST, SHARE_KEPT, estimate, lengths_of
from zoo.figures.curves import interactive_curves
from zoo.figures.style import family
from zoo.figures.training import read_logged, training_curves
from zoo.reports.page import PageSection, Part, Picture, Table, TitledList, page
from zoo.reports.report import NOT_COMPARABLE, Report

NAMED = 3
"""Up to so many encodings are named in a cell of the verdict; of more the nearest, and the number."""
MOST = 10
"""Lengths in a table; of more, every second or third is shown, counted from the longest."""
COSTS = {"tokens_per_second": ("tokens/s", count_text), "peak_memory_mb": ("peak memory (MiB)", count_text)}
RANK = (
    "rank: 1 + the number of {}s that are better beyond the interval of the difference, as are those with a "
    "still better mean from those with a still worse one"
)
BEYOND = (
    "the mean over all tested lengths above the trained one; rank: from 1 + the number of {}s that are "
    "better beyond the interval of the difference to the number of those that are not worse"
)


def report_page(report: Report, svg: bytes | None = None) -> str:
    """The HTML document of a report.

    Args:
        svg: the picture of all curves, in place of interactive figures and of the training, whose script has
            4.8 MB; empty for none.
    """
    opening: list[Part] = [*warning(report), *([about_text(report)] if report.about else [])]
    opening += verdict(report)
    opening += [Picture(svg, f"{report.title}: curves")] if svg else []
    sections, labels = [PageSection("", opening)], report.summary["encoding"].unique()
    for panel in report.panels:
        figure = [] if svg is not None else [interactive_curves(panel, labels)]
        own = [panel["explanation"].iloc[0], *figure, *panel_tables(panel, report.subject)]
        own += floor_table(report, panel) + (ranks_picture(report, panel) if svg is None else [])
        sections.append(PageSection(panel_title(panel), own))
    sections += [PageSection(one.caption, [one]) for one in (*costs_table(report), *tuning_table(report))]
    if svg is None and (figure := training_curves(_logged(report))):
        sections.append(PageSection("Training", [figure]))
    end = [f"This page was made by: {report.command}"] if report.command else []
    if end := end + caveats(report):
        sections.append(PageSection("How to reproduce" if report.command else "Caveats", end))
    return page(f"{'Not comparable: ' if report.differences else ''}{report.title}", sections)


def _logged(report: Report) -> dict[str, tuple[str, pd.DataFrame]]:
    """The label and the log of each run; of a stored run the validation losses."""
    found = {}
    for path, run in report.results.runs.items():
        validation = pd.Series(run.validation, dtype=float).rename_axis("step").to_frame("val/loss")
        logged = read_logged(Path(path))
        found[path] = run.label, validation if logged.empty else logged
    return found


def about_text(report: Report) -> str:
    return "; ".join(f"{name}: {value}" for name, value in report.about.items())


def warning(report: Report) -> list[TitledList]:
    why = f"{NOT_COMPARABLE} (--force): any of these may be the cause of a difference"
    return [TitledList(why, report.differences, is_warning=True)] if report.differences else []


def caveats(report: Report) -> list[TitledList]:
    return [TitledList(f"Caveats ({len(report.caveats)})", report.caveats)] if report.caveats else []


def verdict(report: Report) -> list[Table]:
    """The best encoding at the trained length and at the one that decides the order, the nearest others with
    their differences, and the limits; none where curves are not comparable, or not two were measured."""
    panel = report.summary[report.summary["panel"] == 0]
    if report.differences or panel["encoding"].nunique() < 2:
        return []
    columns = {
        f"{one.length} tokens{' (trained)' * one.is_trained}": {
            "best": one.leader or DASH,
            "tied with": _nearest(one.tied_with),
            "ahead of": _nearest(one.ahead_of),
            "without a value": _nearest(dict.fromkeys(one.absent)),
        }
        for one in findings(panel)
    }
    by = " under ".join(dict.fromkeys((display_name(panel["measure"].iloc[0]), panel_title(panel))))
    cells = pd.DataFrame(columns).rename_axis("", axis="columns")
    return [Table(cells, f"Verdict by {by}", notes=["; ".join(limits(panel, report.subject))])]


def _nearest(others: dict[str, Estimate | None]) -> str:
    texts = [f"{label} {one.text(signed)}" if one else label for label, one in others.items()]
    return ", ".join([*texts[:NAMED], *[f"{len(texts) - NAMED} more"] * (len(texts) > NAMED)]) or DASH


def tables(report: Report) -> list[Table]:
    """The tables of each protocol, one of the costs, and one of the choice from a grid."""
    made: list[Table] = []
    for panel in report.panels:
        made += [*panel_tables(panel, report.subject), *floor_table(report, panel)]
    return [*made, *costs_table(report), *tuning_table(report)]


def panel_tables(panel: pd.DataFrame, subject: str = "encoding") -> Iterator[Table]:
    """A table of values by encoding and length; and one of differences and ranks, where there is a second
    curve. A single curve has its other measures and costs in further rows."""
    lengths = sorted(panel["length"].unique().tolist())
    # The longest, the trained ones, and others evenly between.
    kept = {*lengths[:: -math.ceil(len(lengths) / MOST)], *panel["train_length"]}
    panel = panel.assign(shared=panel.groupby(["length", "rank"])["rank"].transform("size") > 1)
    shown = panel[panel["length"].isin(kept)]
    yield _values(shown, subject, len(lengths))
    if isinstance(panel["reference"].iloc[0], str):
        yield _differences(shown, subject, panel)
        if panel["rank_from"].notna().any():
            cells = beyond_cells(panel).rename_axis(index=None, columns=subject)
            about = f"beyond 1x: {BEYOND.format(subject)}"
            yield Table(cells, f"{panel_title(panel)}: beyond the trained length", notes=[about])


def floor_table(report: Report, panel: pd.DataFrame) -> list[Table]:
    """The scores above the floor beyond the trained length, with their ranks; none without a floor."""
    first, rows, floor = panel.iloc[0], report.results.rows, report.floor
    lengths = [at for at in panel["length"].unique() if at > panel["train_length"].min()]
    if floor is None or first["measure"] != RATE or not lengths:
        return []
    rows = rows[(rows[KIND] == first[KIND]).all(axis=1) & (rows["measure"] == RATE)]
    ranking = of_scores(seed_scores(rows, dict.fromkeys(lengths, floor)).assign(task=first["protocol"]))
    cells = pd.DataFrame({"rank": map(ranking.rank, ranking.values)}, [*ranking.values]).replace("", DASH)
    cells["score"] = [one.text() for one in ranking.values.values()]
    cells = cells.rename_axis(columns=report.subject)
    about = (
        f"max(0, (accuracy - {floor:g}) / (1 - {floor:g})), mean over the lengths above the trained one; "
        f"then the interquartile mean over seeds; ranks and intervals need {FEWEST_SEEDS} seeds"
    )
    return [Table(cells, f"{panel_title(panel)}: score above the floor {floor:g}", notes=[about])]


def ranks_picture(report: Report, panel: pd.DataFrame) -> list[Picture]:
    """The paired differences to the best beyond the trained length, with the rank intervals; none without."""
    from zoo.figures.ranking import dots

    if panel["rank_from"].isna().all():
        return []
    cells = beyond_cells(panel)
    rows = panel.drop_duplicates("encoding").set_index("encoding").loc[cells.index]
    table = rows[["beyond_behind", "beyond_behind_low", "beyond_behind_high"]]
    table = table.set_axis(["value", "low", "high"], axis="columns").assign(rank=cells["rank"], leads=False)
    first = report.results.rows.groupby("encoding")["run"].first()
    specs = {label: report.results.runs[path].recipe["model"]["encoding"] for label, path in first.items()}
    families = {label: family(spec) for label, spec in specs.items()}
    unit = f"mean {display_name(panel['measure'].iloc[0])} beyond the trained length, less that of the best"
    picture = dots({panel_title(panel): (table, unit)}, families, suffix=".svg")
    return [Picture(picture, f"{unit}, with 95 % intervals; after the name the rank interval")]


def beyond_cells(panel: pd.DataFrame) -> pd.DataFrame:
    """Texts by encoding, in the order of the means over the lengths beyond the trained one: its rank
    interval, this mean, its paired difference to the best, the mean at the trained length, and the paired
    changes of a loss from there."""
    trained, _ = lengths_of(panel)
    is_loss = bool(panel["lower_is_better"].iloc[0])
    rows = panel.sort_values("beyond", ascending=is_loss, kind="stable")
    first = rows.drop_duplicates("encoding").set_index("encoding")
    cells = pd.DataFrame(index=first.index)
    ranked = first["rank_from"].notna()
    cells["rank"] = [
        span(int(one["rank_from"]), int(one["rank_to"])) if ranked[label] else DASH
        for label, one in first.iterrows()
    ]
    cells["mean beyond 1x"] = [estimate(one, "beyond").text() for _, one in first.iterrows()]
    cells["to the best"] = [estimate(one, "beyond_behind").text(signed) for _, one in first.iterrows()]
    at = dict(iter(rows.groupby("length")))
    texts = {"1x": (at.get(trained), lambda one: estimate(one).text())}
    for length in (length for length in at if length > trained and is_loss):
        change = at[length], lambda one: estimate(one, "change").plus_minus() or DASH
        texts[f"change at {length / trained:g}x"] = change
    for name, (own, text) in texts.items():
        if own is not None:
            cells[name] = pd.Series({one["encoding"]: text(one) for _, one in own.iterrows()})
    return cells.fillna(DASH)


class _Notes(dict):
    """Footnotes with their marks."""

    def mark(self, note: object) -> str:
        """The mark of a footnote; nothing where there is none."""
        if not isinstance(note, str):
            return ""
        return self.setdefault(note, str(len(self) + 1).translate(SUPERSCRIPTS))

    def lines(self, about: Sequence[str]) -> tuple[str, ...]:
        return ("; ".join(filter(None, about)), *(f"{mark} {note}" for note, mark in self.items()))


def _cells(panel: pd.DataFrame, subject: str, cell: Callable[[Any], str]) -> pd.DataFrame:
    """Texts by encoding and length, in the order of the panel."""
    texts = panel.assign(text=[cell(row) for row in panel.itertuples()])
    table = texts.pivot(index="encoding", columns="length", values="text").loc[panel["encoding"].unique()]
    trained = panel.groupby("encoding", sort=False)["train_length"].first()
    if trained.nunique() > 1:
        table.index = [f"{label}, trained at {length}" for label, length in trained.items()]
    only = trained.iloc[0] if trained.nunique() == 1 else None
    table.columns = [f"{length} (trained)" if length == only else str(length) for length in table]
    return table.rename_axis(index=None, columns=subject)


def _values(panel: pd.DataFrame, subject: str, count: int) -> Table:
    first, notes, labels = panel.iloc[0], _Notes(), panel["encoding"].unique()
    measure, lengths = display_name(first["measure"]), sorted(panel["length"].unique())

    def cell(row: Any) -> str:
        return Estimate(row.mean, row.low, row.high).text() + notes.mark(row.note)

    cells = _cells(panel, subject, cell)
    about = [
        f"{measure}, {'lower' if first['lower_is_better'] else 'higher'} is better",
        spread_text(panel),
        f"{first['counted']}: {_from_to(panel['count'].dropna())}" if panel["count"].notna().any() else "",
        f"seeds: {_from_to(panel['seeds'])}",
        f"text: {path}" if (path := text_path(panel)) else "",
    ]
    if len(lengths) < count:
        about.append(f"{len(lengths)} of {count} lengths are shown; the CSV file has all")
    if panel["effective_length"].notna().any():
        curves = panel.drop_duplicates("encoding")
        cells["effective length"] = [_effective_length(row) for row in curves.itertuples()]
        kept = f"the loss at the trained length plus {NATS_LOST:g} nats"
        if first["measure"] == "accuracy":
            kept = f"{SHARE_KEPT:g} of the accuracy at the trained length"
        about.append(f"effective length: the longest tested one up to which all keep {kept}")
    if len(labels) == 1:
        columns = {name: (display_name(name), number) for name in MEASURES} | COSTS
        for column, (name, text) in columns.items():
            if panel[column].notna().any():
                own = map(text, panel.sort_values("length")[column])
                cells.loc[name] = [*own, *[DASH] * (cells.shape[1] - len(lengths))]
    best = panel[(panel["rank"] == 1) & ~panel["shared"]]
    bold = {([*labels].index(row.encoding), lengths.index(row.length)) for row in best.itertuples()}
    title = f"{panel_title(panel)}: {measure} by {first['axis']} in tokens"
    return Table(cells, title, frozenset(bold), notes.lines(about))


def _effective_length(row: Any) -> str:
    """`256`, or `≥ 512` where no tested length is worse; a dash where it is not defined."""
    if math.isnan(row.effective_length):
        return DASH
    return f"{'≥ ' if row.effective_length_at_least else ''}{int(row.effective_length)}"


def _differences(panel: pd.DataFrame, subject: str, every: pd.DataFrame) -> Table:
    first, notes = panel.iloc[0], _Notes()
    reference = first["reference"]

    def cell(row: Any) -> str:
        value, low, high = row.difference, row.difference_low, row.difference_high
        if row.encoding == reference or math.isnan(value):
            return "reference" if row.encoding == reference else DASH
        if math.isnan(low):
            return signed(value) + notes.mark(f"no interval: {row.no_interval}")
        return Estimate(value, low, high).text(signed) + " tied" * (low <= 0 <= high)

    cells = _cells(panel, subject, cell)
    for length in dict.fromkeys(lengths_of(every)):
        ranked = every[every["length"] == length].itertuples()
        ranks = [DASH if math.isnan(row.rank) else f"{row.rank:.0f}{'=' * row.shared}" for row in ranked]
        cells[f"rank at {length}"] = ranks
    about = [f"{'below' if first['lower_is_better'] else 'above'} zero is better than the reference"]
    if interval := next(iter(panel["interval"].dropna()), ""):
        about.append(f"in brackets the {interval} of the paired difference, tied where it includes zero")
    title = f"{panel_title(panel)}: difference to {reference}"
    return Table(cells, title, notes=notes.lines([*about, RANK.format(subject)]))


def costs_table(report: Report) -> list[Table]:
    """The costs of each encoding, means over its runs; none without runs."""
    if not len(report.costs):
        return []
    length = report.costs["evaluation_length"].iloc[0]
    at = "" if pd.isna(length) else f" at {int(length)}"
    columns = {
        "added_parameters": "added parameters", "parameters": "parameters",
        "training_tokens_per_second": "training tokens/s",
        "evaluation_tokens_per_second": f"evaluation tokens/s{at}",
        "peak_memory_mb": f"peak memory{at} (MiB)",
    }  # fmt: skip
    cells = report.costs[[*columns]].rename(columns=columns).map(count_text)
    about = ["each run was timed at a moment of its own, under the load of its machine then"]
    for work in ("training", "evaluation"):
        machines = report.costs[f"{work}_machine"]
        if machines.nunique() == 1:
            about.append(f"{work} on {machines.dropna().iloc[0]}")
        elif machines.notna().any():
            cells[f"{work} on"] = machines.fillna(DASH)
    if at:
        about.append(f"evaluation by {panel_title(report.panels[0])}, at the longest length that all have")
    return [Table(cells.rename_axis(report.subject, axis="columns"), "Costs", notes=["; ".join(about)])]


def tuning_table(report: Report) -> list[Table]:
    """The validation losses by which the values of a grid were chosen, by seed; none without a grid."""
    tuned = report.tuned
    if not tuned:
        return []
    losses = pd.DataFrame({label: one.get("losses", {}) for label, one in tuned.items()}, dtype=object).T
    cells = losses.map(_losses).rename_axis(report.subject, axis="columns")
    chosen = [" ".join(one["chosen"]) for one in tuned.values()]
    bold = {(row, 1 + [*cells].index(one)) for row, one in enumerate(chosen) if one in cells}
    cells.insert(0, "chosen", chosen)
    about = ", ".join(dict.fromkeys(one["by"] for one in tuned.values()))
    note = f"{about}, lower is better: the mean, and in brackets each seed; {DASH}: a run failed or diverged"
    return [Table(cells, "Tuning", frozenset(bold), [note])]


def _losses(by_seed: dict[str, float | None] | float) -> str:
    """The mean loss of a point of the grid and that of each seed; NaN for a point that was not trained."""
    values = pd.Series(by_seed, dtype=float)
    seeds = ", ".join(f"{seed}: {number(one)}" for seed, one in values.items())
    return f"{number(values.mean())} ({seeds})" if values.notna().all() and len(values) else DASH


def spread_text(panel: pd.DataFrame) -> str:
    """The kind of the intervals, or why there are none."""
    if interval := next(iter(panel["interval"].dropna()), ""):
        return f"(low–high): {interval}"
    reasons = "; ".join(dict.fromkeys(filter(None, panel["unranked"])))
    return f"no interval{f': {reasons}' if reasons else ''}"


def _from_to(counts: pd.Series) -> str:
    return "–".join(f"{int(count):,}" for count in dict.fromkeys((counts.min(), counts.max())))
