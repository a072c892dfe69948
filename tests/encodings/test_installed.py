"""Packages that bring encodings through the entry point, each in a process that finds them installed."""

import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from killed_runs import texts

ROOT = Path(__file__).parents[2]

PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "their-encodings"
version = "1.2"

[project.entry-points."zoo.encodings"]
theirs = "their_encodings.theirs"

[tool.setuptools]
packages = ["their_encodings"]
"""

THEIRS = '''\
"""Two encodings of another's, which stand on a module of the package."""

import torch

import zoo
from zoo.encodings.wrapper import Wrapper

from .power import POWER


@zoo.register("theirs")
class Theirs(zoo.Encoding):
    """Scores fall with the square root of distance."""

    family, relative = "bias", True

    def __init__(self, size: zoo.Size, *, slope: float = 0.5):
        super().__init__(size)
        self.slope = torch.nn.Parameter(torch.full((size.num_heads,), slope))

    def bias(self, head, q, k):
        return -self.slope[head] * (q - k).abs() ** POWER


@zoo.register("around_theirs")
class AroundTheirs(Wrapper):
    """Another, as it is."""

    def __init__(self, size: zoo.Size, *, of: zoo.Encoding):
        super().__init__(size, of)
'''


@pytest.fixture(scope="module")
def their_package(tmp_path_factory):
    """A package that pip built and installed into a folder of its own."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    package = source / "their_encodings"
    package.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT)
    (package / "__init__.py").write_text("")
    (package / "power.py").write_text("POWER = 0.5\n")
    (package / "theirs.py").write_text(THEIRS)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "--disable-pip-version-check", "--target", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [one.version for one in importlib.metadata.distributions(path=[str(target)])] == ["1.2"]
    return target


@pytest.fixture
def zoo_with(here, mapping, forks):
    """Run each command of `zoo` in a process that finds these packages installed, and return the outputs.

    max_index.yaml is a recipe of a few steps.
    """
    recipe = {key: value for key, value in mapping("max_index").items() if key != "name"}
    (here / "max_index.yaml").write_text(yaml.safe_dump(recipe))
    patch, logs = here / "install.py", map("{}.log".format, itertools.count())

    def run(sites, *commands):
        patch.write_text(
            f"import sys; sys.path[:0] = {[*map(str, sites)]}\n"
            # The process that forks has looked for encodings, where these packages are not.
            "from zoo.registry import encodings; encodings._installed_imported = False"
        )
        outputs = []
        for command in commands:
            log = here / next(logs)
            (code,) = forks.wait(forks.start(command, here, log, patch=patch))
            outputs.append(Output(code, texts(log)))
            assert "Traceback" not in outputs[-1].text
        return outputs

    return run


class Output(NamedTuple):
    code: int
    text: str


EVALUATE = ["evaluate", "run", "--lengths", "8"]


def fit(encoding, run="run"):
    return ["fit", "--recipe", "max_index.yaml", "--set", f"model.encoding={encoding}", "--out", run]


def test_an_installed_encoding_is_listed_trained_and_named_by_its_checkpoint(their_package, zoo_with, here):
    encoding = "{name: around_theirs, of: {name: theirs, slope: 0.25}}"
    table, shown, fitted, evaluated = zoo_with(
        [their_package], ["list", "*theirs"], ["list", "theirs"], fit(encoding), EVALUATE
    )
    around, theirs = (line.split() for line in table.text.splitlines()[1:3])
    # A slope for each of 8 heads.
    assert theirs[:7] == ["theirs", "bias", "both", "8", "no", "their-encodings", "1.2"]
    assert around[0] == "around_theirs" and "their-encodings 1.2" in " ".join(around)
    assert "from: their-encodings 1.2" in shown.text and "slope: number = 0.5" in shown.text
    assert fitted.code == 0, fitted.text
    assert evaluated.code == 0 and "warning" not in evaluated.text
    sources = json.loads((here / "run" / "card.json").read_text())["code_source"]
    assert [(one["name"], one["package"], one["version"]) for one in sources] == [
        ("around_theirs", "their-encodings", "1.2"),
        ("theirs", "their-encodings", "1.2"),
    ]

    (refused,) = zoo_with([], EVALUATE)
    assert refused.code == 2
    for name in ("around_theirs", "theirs"):
        assert f"encoding '{name}' of their-encodings 1.2 (sha256 " in refused.text
    assert "pip install their-encodings==1.2" in refused.text


@pytest.mark.slow
def test_check_accepts_an_installed_encoding(their_package):
    """In a process that is not forked from another."""
    path = os.pathsep.join([str(their_package), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "zoo", "check", "theirs"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every parameter has a gradient" in done.stdout and "FAILED" not in done.stdout
