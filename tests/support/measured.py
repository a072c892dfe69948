"""Flat rows, as tests write them, as the measurements that an evaluation would have stored."""

import math

from zoo.evaluation.measurement import Measurement, Units, flat_rows
from zoo.evaluation.store import store

ABOUT = ("run", "encoding", "seed", "train_length", "checkpoint", "step", "changed", "protocol", "parameters")


def measurements_of(rows):
    """The measurements that some rows of one run come to; a note is of the targets of its neighbours."""
    made = {}
    for row in sorted(rows, key=lambda row: "note" in row):
        about = {key: row[key] for key in ABOUT if key in row}
        kind = repr([row.get(key) for key in ("checkpoint", "protocol", "parameters", "changed")])
        near = [digest for (other, digest) in made if other == kind]
        digest = row.get("targets") or (near[0] if near else "abcdef012345")
        targets = {"digest": digest, "count": 256}
        about["axis"] = "context" if row["protocol"] == "per_position" else "length"
        about["higher_is_better"] = row["protocol"] == "accuracy"
        own = made.setdefault((kind, digest), about | {"targets": targets, "rows": {}})
        numbers = {key: value for key, value in row.items() if key not in (*ABOUT, "targets")}
        if "documents" in numbers.get("units", {}):
            units = numbers["units"]
            nats = [math.nan if one is None else one for one in units["nats"]]
            numbers["units"] = Units.of_documents(
                units["documents"], nats, units["tokens"], units.get("bytes")
            )
        own["rows"].setdefault(row["length"], numbers)
    return [
        Measurement(**own | {"rows": [own["rows"][length] for length in sorted(own["rows"])]})
        for own in made.values()
    ]


def store_rows(folder, rows):
    store(folder, measurements_of(rows))


def rows_with_units(measurements):
    """The flat rows of measurements, with the scores of each document, block or example."""
    rows = [row for one in measurements for row in one.rows]
    return [
        flat | ({"units": units.columns()} if (units := row.blocks or row.units) else {})
        for flat, row in zip(flat_rows(measurements), rows, strict=True)
    ]
