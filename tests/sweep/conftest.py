"""Sweeps over a tiny recipe, with a stand-in for `fit` where the training itself does not matter."""

from pathlib import Path

import pytest
import yaml
from fit_stub import PROCESSES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tiny(here, mapping):
    """A recipe file without an encoding, in the working directory."""
    made = {key: value for key, value in mapping("max_index").items() if key != "name"}
    made["model"] = {key: value for key, value in made["model"].items() if key != "encoding"}
    (here / "tiny.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    return Path("tiny.yaml")


@pytest.fixture
def alone(monkeypatch):
    """The processes of runs take one core and no GPU."""
    for name, value in {"PYTHONPATH": ROOT, "OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": ""}.items():
        monkeypatch.setenv(name, str(value))


@pytest.fixture
def compared(monkeypatch):
    """The arguments of each comparison, instead of the comparison."""
    calls = []
    monkeypatch.setattr(
        "zoo.reports.compare.compare",
        lambda paths, out: calls.append(([path.name for path in paths], str(out))),
    )
    return calls


@pytest.fixture
def stub(tiny, compared, monkeypatch):
    """`fit` is the stand-in; gives the lines of its beginnings and ends."""
    monkeypatch.setattr("zoo.sweep.sweep.subprocess", PROCESSES)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def times():
        file = Path("times")
        return [line.split() for line in file.read_text().splitlines()] if file.is_file() else []

    return times


@pytest.fixture
def steps_of():
    """The optimizer steps in a run folder's last checkpoint, made by the stand-in."""
    return lambda folder: int(Path(folder, "checkpoints", "last.ckpt").read_text())
