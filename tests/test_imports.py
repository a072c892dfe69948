"""The modules of the zoo import each other in one direction, and no more of others than a command needs."""

import ast
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


def test_pictures_know_no_report_and_no_command():
    above = ("zoo.reports", "zoo.notebook", "zoo.commands", "zoo.sweep", "zoo.training")
    for name, file in MODULES.items():
        if name.startswith("zoo.figures"):
            assert not [one for one in imports(file) if one.startswith(above)], name


HEAVY = {"numpy", "torch", "lightning", "torchmetrics", "transformers", "datasets", "matplotlib", "scipy"}
RECIPE = "recipes/alibi_sample.yaml"
BROKEN = ["--set", "model.encoding.slope=official"]
"""A key that the encoding does not have."""


@pytest.mark.launch
@pytest.mark.parametrize(
    "command, code",
    [
        ([], 0),
        *(([verb, "--help"], 0) for verb in VERBS),
        *((["list", what], 0) for what in LISTS if what != "runs"),
        (["list", "runs"], 2),  # there are none
        (["list", "rope"], 0),
        (["list", "no_such"], 2),
        (["show", RECIPE], 0),
        (["show", "--schema"], 0),
        (["show", RECIPE, *BROKEN], 2),
        (["fit", RECIPE, *BROKEN], 2),
        (["evaluate", "no_such"], 2),
        (["gallery", "no_such"], 2),
        (["draw", "no_such", "--out", "x.jpg"], 2),
        (["completion", "bash"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_heavy_is_imported_to_read_to_check_and_to_list(command, code, tmp_path):
    (tmp_path / "recipes").symlink_to(ROOT.parent / "recipes")
    # The options of a generated task are checked by its class, which draws by numpy.
    heavy = HEAVY - {"numpy"} if command == ["list", "recipes"] else HEAVY
    program = (
        "import sys\nfrom zoo.cli import main\n"
        "try:\n    code = main(sys.argv[1:])\nexcept SystemExit as end:\n    code = end.code\n"
        f"print(code, sorted({heavy} & sys.modules.keys()), file=sys.stderr)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )
    assert done.stderr.splitlines()[-1] == f"{code} []", done.stderr
