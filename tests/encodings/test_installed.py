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
def other_package(tmp_path):
    """Another package: its files as an installer writes them, in a folder of their own."""

    def other_package(name, version, point, **modules):
        site = tmp_path / "sites" / f"{name}-{version}"
        package = site / name.replace("-", "_")
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        for module, source in modules.items():
            (package / f"{module}.py").write_text(source)
        info = site / f"{package.name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[zoo.encodings]\n{point}\n")
        return site

    return other_package


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


LIST, LIST_THEIRS, EVALUATE = ["list", "encodings"], ["list", "theirs"], ["evaluate", "run", "--lengths", "8"]


def fit(encoding, run="run"):
    return ["fit", "--recipe", "max_index.yaml", "--set", f"model.encoding={encoding}", "--out", run]


def test_an_installed_encoding_is_listed_trained_and_named_by_its_checkpoint(
    their_package, other_package, zoo_with, here
):
    broken = other_package("broken", "0.3", "lost = broken.nowhere")
    encoding = "{name: around_theirs, of: {name: theirs, slope: 0.25}}"
    table, shown, fitted, evaluated = zoo_with(
        [broken, their_package], ["list", "*theirs"], LIST_THEIRS, fit(encoding), EVALUATE
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


BROKEN = {
    "raises": (
        "raise RuntimeError('no licence')\n" + THEIRS.replace('"theirs"', '"in_raises"'),
        "theirs.py:1: RuntimeError: no licence",
    ),
    "no-python": ("class Theirs(\n" + THEIRS, "theirs.py:1: not Python: '(' was never closed"),
    "no-module": (None, "No module named 'no_module.theirs'"),
    "no-class": ("import zoo\n", "no class is decorated with @zoo.register"),
}


def test_a_broken_package_breaks_only_itself(other_package, zoo_with):
    sites = []
    for kind, (source, _) in BROKEN.items():
        modules = {} if source is None else {"theirs": source}
        point = f"in_{kind} = {kind.replace('-', '_')}.theirs"
        sites.append(other_package(kind, "0.3", point, **modules))
    commands = [
        (kind, command)
        for kind in BROKEN
        for command in (["list", f"in_{kind}"], fit(f"in_{kind}"), ["check", f"in_{kind}"])
    ]
    listed, *asked = zoo_with(sites, LIST, *(command for _, command in commands))
    assert listed.code == 0
    names = [line.split()[0] for line in listed.text.split("\n\n")[0].splitlines()[1:]]
    assert {"alibi", "none", "rope"} <= set(names)
    for kind, (_, cause) in BROKEN.items():
        notes = [line for line in listed.text.splitlines() if line.startswith(f"cannot be used: in_{kind}: ")]
        assert len(notes) == 1 and f"package {kind} 0.3: " in notes[0] and cause in notes[0]
    for (kind, _), one in zip(commands, asked, strict=True):
        assert one.code == 2 and f"package {kind} 0.3: " in one.text and BROKEN[kind][1] in one.text


def test_two_packages_with_one_name_are_both_reported_and_neither_is_taken(other_package, zoo_with):
    source = THEIRS.replace("from .power import POWER", "POWER = 0.5")
    sites = [
        other_package(name, version, f"theirs = {name}.encodings", encodings=source)
        for name, version in (("one", "1.0"), ("other", "2.0"))
    ]
    for asked in zoo_with(sites, LIST_THEIRS, fit("theirs")):
        assert asked.code == 2
        for part in ("package one 1.0", "package other 2.0", "two encodings are called 'theirs'"):
            assert part in asked.text
    assert zoo_with(sites[:1], LIST_THEIRS)[0].code == 0


def test_an_unknown_name_lists_the_broken_packages(other_package, zoo_with):
    site = other_package("broken", "0.3", "their_plugins = broken.plugins", plugins="class (")
    (asked,) = zoo_with([site], fit("theirs"))
    assert asked.code == 2
    assert "no encoding 'theirs'" in asked.text and "cannot be used: package broken 0.3: " in asked.text
