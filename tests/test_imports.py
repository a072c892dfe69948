"""The modules of the zoo import each other in one direction."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import zoo

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
