"""A package that pip has installed brings encodings through its entry point."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_an_installed_encoding_is_listed_and_checked(their_package):
    path = os.pathsep.join([str(their_package), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def zoo(*arguments):
        command = [sys.executable, "-m", "zoo", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    around, theirs = (line.split() for line in zoo("list", "*theirs").splitlines()[1:3])
    # A slope for each of 8 heads.
    assert theirs[:7] == ["theirs", "bias", "both", "8", "no", "their-encodings", "1.2"]
    assert around[0] == "around_theirs"
    checked = zoo("check", "theirs")
    assert "every parameter has a gradient" in checked and "FAILED" not in checked
