"""What an encoding is good for on max-index: trained with the article's sizes, in fewer steps.

Sinusoidal, learned and rotary positions find the first of the largest tokens. T5's bias tells how far apart
two tokens are and not which of them is first in the sequence, and without positions there is no first at all.
"""

from pathlib import Path

import pytest

from zoo.data.max_index import MaxIndex
from zoo.evaluation.measurement import flat_rows
from zoo.evaluation.store import read_measurements
from zoo.recipe import read_recipe
from zoo.training.fit import fit

pytestmark = pytest.mark.slow

BASE = Path(__file__).parents[2] / "recipes" / "base" / "maxindex.yaml"
STEPS = 250  # of the recipe's 600: the order is clear by then
LENGTH, SAMPLES = 64, 4096
ORDERED = ("sinusoidal", "learned", "rope")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What each encoding comes to at the trained length: a row of the protocol `accuracy`."""
    rows = {}
    for encoding in (*ORDERED, "t5", "none"):
        sets = [
            f"model.encoding={encoding}", f"trainer.max_steps={STEPS}", "trainer.accelerator=cpu",
            "trainer.limit_val_batches=1", f"evaluate.lengths=[{LENGTH}]", f"evaluate.samples={SAMPLES}",
            "logging=[]",
        ]  # fmt: skip
        folder = fit(read_recipe(BASE, sets), out=tmp_path_factory.mktemp("runs") / encoding)
        (rows[encoding],) = flat_rows(read_measurements(folder))
    return rows


def test_encodings_that_place_tokens_find_the_first_of_the_largest(trained):
    assert all(trained[encoding]["accuracy"] >= 0.95 for encoding in ORDERED)


def test_t5_stays_below_them(trained):
    # Not by chance: the intervals are apart.
    assert trained["t5"]["accuracy_high"] < min(trained[encoding]["accuracy_low"] for encoding in ORDERED)


def test_every_one_of_them_finds_the_value(trained):
    assert all(row["value_accuracy"] >= 0.95 for row in trained.values())


def test_without_positions_the_index_is_a_guess_among_the_ties(trained):
    tokens = MaxIndex(LENGTH, 19, seed=0, split="test", size=SAMPLES).batch(range(SAMPLES))["tokens"]
    guess = (1 / (tokens == tokens.amax(1, keepdim=True)).sum(1)).double().mean().item()
    assert 0.3 < guess < 0.5
    assert trained["none"]["accuracy"] == pytest.approx(guess, abs=1e-3)
