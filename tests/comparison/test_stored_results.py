"""The numbers of `zoo compare` on stored runs stay as they are.

`stored_cells.csv` beside this file has them for some runs of three studies. After a change that is meant to
change them, write it again: `PYTHONPATH=.:scripts python tests/comparison/test_stored_results.py`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest

from results import OUT, STUDIES, read_studies
from zoo.comparison import stored
from zoo.reports.report import build

KNOWN = Path(__file__).with_name("stored_cells.csv")
# One that ends at the trained length, one that is read in other ways after training, two that are close.
ENTRIES = {
    "max_index": ("alibi", "rope", "t5"),
    "text": ("sandwich", "kerple", "rope", "learned"),
    "masked_text": ("dpb", "alibi", "rope"),
}
SEEDS = {"max_index": 3, "text": 1, "masked_text": 3}
INDEX = ["study", "protocol", "parameters", "encoding", "length"]
NUMBERS = [
    "mean", "sd", "low", "high", "rank", "difference", "difference_low", "difference_high", "behind_low",
    "effective_length", "count",
]  # fmt: skip


def summaries(*protocols):
    """The summaries of the studies, by all protocols or by some."""
    found = []
    for study in read_studies(STUDIES):
        if study.name in ENTRIES and {*protocols} <= {*study.protocols}:
            wanted = [
                run
                for run in stored.read(OUT / f"{study.name}.parquet")
                if run.origin["encoding"] in ENTRIES[study.name] and run.seed < SEEDS[study.name]
            ]
            with TemporaryDirectory() as folder:
                stored.write(file := Path(folder) / "some.parquet", wanted)
                found.append(build([file], protocols).summary.assign(study=study.name))
    return pd.concat(found).set_index(INDEX)[[*NUMBERS, "interval", "reference", "note"]].sort_index()


@pytest.fixture(scope="module")
def now():
    return summaries()


def test_the_numbers_of_stored_runs_are_kept(now):
    known = pd.read_csv(KNOWN, keep_default_na=False, na_values=[""]).set_index(INDEX).sort_index()
    for column in NUMBERS:
        assert now[column].tolist() == pytest.approx(known[column].tolist(), rel=1e-9, abs=1e-12, nan_ok=True)
    for column in ("interval", "reference", "note"):
        assert now[column].fillna("").tolist() == known[column].fillna("").tolist()
    assert now.index.tolist() == known.index.tolist()


@pytest.mark.parametrize("protocol", ["nonoverlapping", "fixed_targets"])
def test_a_number_has_one_interval_whatever_else_is_compared(now, protocol):
    columns = ["mean", "low", "high", "rank", "behind_low", "interval"]
    own = now.query("protocol == @protocol")[columns]
    pd.testing.assert_frame_equal(own, summaries(protocol)[columns])


if __name__ == "__main__":
    summaries().to_csv(KNOWN, float_format="%.12g")
