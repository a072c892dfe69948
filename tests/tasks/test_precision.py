"""Every precision that a CPU can train in takes its steps, gradient clipping included."""

import math

import pytest
import torch
import yaml

from zoo.cli import main
from zoo.errors import InputError
from zoo.recipe import read_recipe
from zoo.reports.fit import fit
from zoo.training.devices import validate_precision


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "16-true", "64-true"])
def test_a_run_in_this_precision(here, recipe, precision):
    folder = fit(recipe("max_index", f"trainer.precision={precision}", "trainer.max_steps=4"))
    weights = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert all(value.isfinite().all() for value in weights.values())
    rows = (folder / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("train/loss")
    assert math.isfinite(float(rows[1].split(",")[column]))


MESSAGE = "16-mixed needs a GPU: on a CPU it would be computed in bf16-mixed; choose bf16-mixed or 32-true"


def test_16_mixed_without_a_gpu_is_an_input_error(here, recipe, mapping, monkeypatch, capsys):
    here.joinpath("max_index.yaml").write_text(yaml.safe_dump(mapping("max_index")))
    here.joinpath("half.yaml").write_text("base: max_index.yaml\ntrainer:\n  precision: 16\n")
    with pytest.raises(InputError) as caught:
        read_recipe("half.yaml")
    assert str(caught.value) == f"half.yaml:3: trainer.precision: {MESSAGE}"
    with pytest.raises(InputError, match=r"trainer\.precision: 16-mixed needs"):
        fit(recipe("max_index", "trainer.precision=16-mixed"))
    # A run that was trained on a GPU can be read on a CPU.
    assert recipe("max_index", "trainer.precision=16-mixed").trainer.precision == "16-mixed"
    # With `auto` the hardware decides.
    monkeypatch.setattr("lightning.pytorch.accelerators.CUDAAccelerator.is_available", lambda: False)
    assert main(["fit", "--recipe", "half.yaml", "--set", "trainer.accelerator=auto"]) == 2
    assert capsys.readouterr().err == f"half.yaml:3: trainer.precision: {MESSAGE}\n"
    assert not (here / "runs").exists()
    monkeypatch.setattr("lightning.pytorch.accelerators.CUDAAccelerator.is_available", lambda: True)
    validate_precision(recipe("max_index", "trainer.precision=16-mixed", "trainer.accelerator=auto"))
