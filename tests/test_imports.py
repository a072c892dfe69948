"""Imports: in one direction between modules, and nothing heavy for commands that only read."""

import ast
import html
import json
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import zoo
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


def test_pages_name_what_is_there():
    entry_points = {f"{kind}s" for kind in zoo.registry.KINDS}
    for page in (ROOT.parent / "README.md", *(ROOT.parent / "docs").glob("*.md")):
        for name in set(re.findall(r"\bzoo\.([A-Za-z_]+)", html.unescape(page.read_text()))):
            assert name in entry_points or f"zoo.{name}" in MODULES or hasattr(zoo, name), (page, name)


HEAVY = {"numpy", "torch", "lightning", "torchmetrics", "transformers", "datasets", "matplotlib", "scipy"}


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


UNUSED = HEAVY - {"numpy", "torch"} | {"pandas", "sympy", "torch._dynamo"}
"""What a command that trains and measures nothing does not need."""


@pytest.mark.launch
@pytest.mark.parametrize(("commands", "heavy"), [
    ([*(([verb, "--help"], 0) for verb in VERBS), ([], 0), (["evaluate", "no_such"], 2)], HEAVY),
    ([(["show", "alibi_wikitext2"], 0), (["list", "tasks"], 0)], UNUSED),
])  # fmt: skip
def test_nothing_heavy_is_imported_that_is_not_needed(commands, heavy, tmp_path):
    """One process runs all commands: the first that imports something heavy is the first that fails."""
    given = [json.dumps([command for command, _ in commands]), json.dumps(sorted(heavy))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *given], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[command, code, []] for command, code in commands]
