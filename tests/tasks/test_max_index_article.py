"""Max-index with the sizes of the article, in fewer and smaller steps.

Sinusoidal and rotary positions find the first of the largest tokens, and so does T5's bias, which tells left
from right. Without positions there is no first.
"""

from pathlib import Path

import pytest

from zoo.data.max_index import MaxIndex
from zoo.evaluation.measurement import flat_rows
from zoo.evaluation.store import read_measurements
from zoo.recipe import read_recipe
from zoo.reports.fit import fit

pytestmark = pytest.mark.slow

BASE = Path(__file__).parents[2] / "recipes" / "base" / "maxindex.yaml"
STEPS, BATCH = 250, 32  # of the recipe's 600 and 128: the order is clear by then
LENGTH, SAMPLES = 64, 2048
ORDERED = ("sinusoidal", "rope", "t5")


def test_encodings_solve_max_index_as_in_the_article(tmp_path):
    rows = {}
    for encoding in (*ORDERED, "none"):
        sets = [
            f"model.encoding={encoding}", f"trainer.max_steps={STEPS}", "trainer.accelerator=cpu",
            "trainer.limit_val_batches=1", f"evaluate.lengths=[{LENGTH}]", f"evaluate.samples={SAMPLES}",
            f"data.batch_size={BATCH}", "logging=[]",
        ]  # fmt: skip
        folder = fit(read_recipe(BASE, sets), out=tmp_path / encoding)
        (rows[encoding],) = flat_rows(read_measurements(folder))
    assert all(row["value_accuracy"] >= 0.95 for row in rows.values())
    assert all(rows[encoding]["accuracy"] >= 0.95 for encoding in ORDERED)
    # Without positions the index is a guess among the largest tokens.
    tokens = MaxIndex(LENGTH, 19, seed=0, split="test", size=SAMPLES).batch(range(SAMPLES))["tokens"]
    guess = (1 / (tokens == tokens.amax(1, keepdim=True)).sum(1)).double().mean().item()
    assert 0.3 < guess < 0.5
    assert rows["none"]["accuracy"] == pytest.approx(guess, abs=1e-3)
