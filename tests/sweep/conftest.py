"""Sweeps over a tiny recipe."""

from pathlib import Path

import pytest
import yaml

from zoo.sweep.flags import read_flags
from zoo.sweep.folder import KeptRun

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tiny(here, mapping):
    """A recipe file without an encoding, in the working directory."""
    made = {key: value for key, value in mapping("max_index").items() if key != "name"}
    made["model"] = {key: value for key, value in made["model"].items() if key != "encoding"}
    (here / "tiny.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    return Path("tiny.yaml")


@pytest.fixture
def planned(tiny):
    """The runs of flags."""

    def planned(encodings, seeds=(0,), sets=(), grid=(), file=tiny):
        return read_flags(file, encodings, seeds, sets, grid).entries(Path("runs"))

    return planned


@pytest.fixture
def environment(monkeypatch):
    """The processes of runs take one core and no GPU."""
    for name, value in {"PYTHONPATH": ROOT, "OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": ""}.items():
        monkeypatch.setenv(name, str(value))


@pytest.fixture
def untrained(tiny, monkeypatch):
    """Runs end at once, with their learning rate as the validation loss.

    Gives the names of those begun, those that fail, and the names of the runs in each comparison.
    """
    begun, fails, compared = [], set(), []

    def run_all(commands, places):
        begun.extend(one.name for one in commands)
        for one in commands:
            if one.name not in fails:
                folder = Path("runs", one.name)
                folder.mkdir(parents=True, exist_ok=True)
                (lr,) = (word.partition("=")[2] for word in one.words if word.startswith("optimizer.lr="))
                (folder / "metrics.csv").write_text(f"step,val/loss\n6,{lr}\n")
        return dict.fromkeys(fails & {one.name for one in commands}, "exit code 1")

    monkeypatch.setattr("zoo.sweep.sweep.run_all", run_all)
    monkeypatch.setattr(KeptRun, "is_finished", property(lambda run: run.folder.exists()))
    monkeypatch.setattr(KeptRun, "validate_folder", lambda run: None)
    monkeypatch.setattr(
        "zoo.reports.compare.compare", lambda paths, out: compared.append([path.name for path in paths])
    )
    return begun, fails, compared
