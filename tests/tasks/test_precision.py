"""Every precision that a CPU can train in takes its steps, gradient clipping included."""

import math

import pytest
import torch

from zoo.training.fit import fit


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "bf16-true", "64-true"])
def test_a_run_in_this_precision(here, recipe, precision):
    folder = fit(recipe("max_index", f"trainer.precision={precision}", "trainer.max_steps=4"))
    weights = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert all(value.isfinite().all() for value in weights.values())
    rows = (folder / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("train/loss")
    assert math.isfinite(float(rows[1].split(",")[column]))
