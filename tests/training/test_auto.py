"""The value of `auto`: by the device, the model and the length of the run. A resumed run keeps it."""

import json
from types import SimpleNamespace

import pytest
import torch
import yaml

from zoo.recipe.diff import refused_on_resume
from zoo.reports.fit import fit
from zoo.training import auto
from zoo.training.auto import choose_auto


@pytest.fixture
def recipe(recipe):
    def undecided(kind, *sets):
        return recipe(kind, "trainer.precision=auto", "compile=auto", *sets)

    return undecided


@pytest.fixture
def machine(monkeypatch):
    """A machine with these devices and abilities."""

    def machine(bf16=True, cuda=False, mps=False, compiler=True):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        monkeypatch.setattr(auto.shutil, "which", lambda _: "/usr/bin/g++" if compiler else None)
        found = SimpleNamespace() if compiler else None
        monkeypatch.setattr(auto.importlib.util, "find_spec", lambda _: found)

    return machine


WIDE, ANY = "model.d_model=64", "trainer.accelerator=auto"


@pytest.mark.parametrize(("devices", "sets", "chosen"), [
    ({}, [WIDE], "bf16-mixed"),
    ({}, ["model.d_model=62"], "32-true"),
    ({"bf16": False}, [WIDE], "32-true"),
    ({"cuda": True, "bf16": False}, [WIDE, ANY], "32-true"),
    ({"mps": True}, [WIDE, ANY], "32-true"),
    ({}, [WIDE, "trainer.precision=64"], "64-true"),
])  # fmt: skip
def test_precision(recipe, machine, devices, sets, chosen):
    machine(**devices)
    given = recipe("text", *sets)
    assert choose_auto(given).trainer.precision == chosen
    assert (given.trainer.precision == "auto") == ("trainer.precision=64" not in sets)


@pytest.mark.parametrize(("devices", "sets", "chosen"), [
    ({}, ["trainer.max_steps=5000"], True),
    ({}, ["trainer.max_steps=4999"], False),
    ({}, ["trainer.max_steps=5000", "compile=false"], False),
    ({"compiler": False}, ["trainer.max_steps=5000"], False),
    ({"cuda": True}, [ANY, "trainer.max_steps=1000"], True),
    ({"mps": True}, [ANY, "trainer.max_steps=100000"], False),
])  # fmt: skip
def test_compilation(recipe, machine, devices, sets, chosen):
    machine(**devices)
    assert choose_auto(recipe("text", *sets)).compile is chosen


def test_a_resumed_run_keeps_the_chosen_values(recipe, machine):
    machine()
    given = recipe("text", WIDE, "trainer.max_steps=6000")
    stored = choose_auto(given).as_dict()
    assert (stored["trainer"]["precision"], stored["compile"]) == ("bf16-mixed", True)
    machine(bf16=False, compiler=False)
    assert choose_auto(given, stored).as_dict() == stored
    assert not refused_on_resume(stored, given)
    other = recipe("text", WIDE, "trainer.max_steps=6000", "trainer.precision=32")
    assert [key for key, *_ in refused_on_resume(stored, other)] == ["trainer.precision"]


def test_the_run_folder_holds_the_chosen_values(here, recipe, machine, capsys, unmeasured):
    machine(bf16=False)
    given = recipe("max_index", WIDE, "trainer.max_steps=4")
    folder = fit(given)
    assert "4 steps in 32-true; validation" in capsys.readouterr().out
    stored, card = (
        yaml.safe_load((folder / "recipe.yaml").read_text()),
        json.loads((folder / "card.json").read_text()),
    )
    assert (stored["trainer"]["precision"], stored["compile"]) == ("32-true", False)
    assert (card["precision"], card["compiled"]) == ("32-true", False)
    machine()
    more = recipe("max_index", WIDE, "trainer.max_steps=4", "evaluate.samples=8")
    assert fit(more, resume=True) == folder
    assert yaml.safe_load((folder / "recipe.yaml").read_text())["trainer"]["precision"] == "32-true"
