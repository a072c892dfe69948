"""Imports: in one direction between modules, and nothing heavy for commands that only read."""

import ast
import json
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import zoo
from zoo.commands.list_things import LISTS
from zoo.commands.parser import VERBS

ROOT = Path(zoo.__file__).parent


def module_of(file):
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in sorted(ROOT.rglob("*.py"))}


def imports(file):
    """The zoo's modules that a file imports: at its top, in functions, and for type checkers alone."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                yield inner if inner in MODULES else node.module


def test_no_module_imports_one_that_imports_it():
    graph = {name: set(imports(file)) - {name} for name, file in MODULES.items()}
    # Raises CycleError with the modules of the circle.
    assert set(TopologicalSorter(graph).static_order()) == set(MODULES)


def test_figures_import_no_report_and_no_command():
    above = ("zoo.reports", "zoo.notebook", "zoo.commands", "zoo.sweep", "zoo.training")
    for name, file in MODULES.items():
        if name.startswith("zoo.figures"):
            assert not [one for one in imports(file) if one.startswith(above)], name


HEAVY = {"numpy", "torch", "lightning", "torchmetrics", "transformers", "datasets", "matplotlib", "scipy"}
RECIPE = "recipes/alibi_sample.yaml"
BROKEN = ["--set", "model.encoding.slope=official"]
"""A key that the encoding does not have."""


PROGRAM = """
import contextlib, io, json, sys
from zoo.cli import main
found = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = main(command)
        except SystemExit as end:
            code = end.code
    found.append([command, code, sorted(set(json.loads(sys.argv[2])) & sys.modules.keys())])
print(json.dumps(found))
"""


@pytest.mark.launch
def test_commands_that_only_read_import_nothing_heavy(tmp_path):
    """One process runs all commands: the first that imports something heavy is the first that fails."""
    commands = [
        *(([verb, "--help"], 0) for verb in VERBS),
        ([], 0),
        *((["list", what], 0) for what in LISTS if what not in ("runs", "recipes")),
        (["list", "runs"], 2),  # there are none
        (["list", "rope"], 0),
        (["list", "no_such"], 2),
        (["show", RECIPE], 0),
        (["show", "--schema"], 0),
        (["show", RECIPE, *BROKEN], 2),
        (["fit", RECIPE, *BROKEN], 2),
        (["evaluate", "no_such"], 2),
        (["draw", "no_such", "--out", "x.jpg"], 2),
        (["completion", "bash"], 0),
        (
            ["list", "recipes"],
            0,
        ),  # last: the options of a generated task are checked by its class, with numpy
    ]
    (tmp_path / "recipes").symlink_to(ROOT.parent / "recipes")
    given = [json.dumps([command for command, _ in commands]), json.dumps(sorted(HEAVY))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *given], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = [[command, code, []] for command, code in commands]
    expected[-1][-1] = ["numpy"]
    assert json.loads(done.stdout) == expected
