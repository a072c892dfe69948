"""The panels of a report's summary as objects, for tests."""

import json
import math
from types import SimpleNamespace

from zoo.comparison.paired import Difference


def none(value):
    return None if isinstance(value, float) and math.isnan(value) else value


class PanelView:
    def __init__(self, table):
        first = table.iloc[0]
        self.table, self.protocol, self.parameters = table, first["protocol"], json.loads(first["parameters"])
        self.targets, self.measure, self.reference = first["targets"], first["measure"], first["reference"]
        self.lengths = tuple(sorted(set(table["length"])))
        self.interval = next(iter(table["interval"].dropna()), "")
        self.curves = [self._curve(label, own) for label, own in table.groupby("encoding", sort=False)]

    def _curve(self, label, own):
        columns = {
            name: tuple(map(none, own[name])) for name in ("mean", "sd", "low", "high", "measured", "count")
        }
        notes = {row.length: row.note for row in own.itertuples() if isinstance(row.note, str)}
        points = [
            SimpleNamespace(seed=seed, length=length, value=value)
            for length, values in zip(own["length"], own["values"], strict=True)
            for seed, value in values.items()
        ]
        first = own.iloc[0]
        return SimpleNamespace(
            label=label, lengths=self.lengths, notes=notes, points=points,
            runs=tuple(first["runs"].split()), seeds=first["seeds"],
            train_length=first["train_length"], **columns,
        )  # fmt: skip

    def _row(self, label, length):
        return self.table[(self.table["encoding"] == label) & (self.table["length"] == length)].iloc[0]

    def between(self, length, one, other):
        """One less the other, of which one is the reference."""
        if one == self.reference:
            found = self.between(length, other, one)
            return found and -found
        assert other == self.reference
        row = self._row(one, length)
        ends = [none(row[f"difference{end}"]) for end in ("", "_low", "_high")]
        return None if ends[0] is None else Difference(*ends, row["no_interval"])

    def rank(self, label, length):
        return none(self._row(label, length)["rank"])

    def winner(self, length):
        """The only curve of rank 1."""
        own = self.table[(self.table["length"] == length) & (self.table["rank"] == 1)]
        return own.iloc[0]["encoding"] if len(own) == 1 else None


def panels(report):
    return [PanelView(table) for table in report.panels]
