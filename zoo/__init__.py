"""A zoo of positional encodings for transformers.

import zoo

zoo.encodings.names()                              what there is
model = zoo.load("runs/alibi_wikitext2")           a trained model
model = zoo.build("recipes/rope_wikitext2.yaml")   one at its initial weights

run = zoo.fit("recipes/rope_maxindex.yaml")        train; `zoo.open("runs/x")` opens a run that is there
run.recipe, run.card, run.curves, run.results, run.model()
zoo.evaluate(run, lengths=[128, 256])
zoo.results(["runs/a", "runs/b"])                  all measurements, a pandas DataFrame
zoo.compare(["runs/a", "runs/b"])                  a picture and tables, in a notebook

encoding = zoo.encoding("fire", d_model=512, num_heads=8, num_layers=6, length=1024)    in your own model

@zoo.register("mine")              one of your own
class Mine(zoo.Encoding): ...

Likewise `@zoo.register.dataset("name")`, `.task`, `.protocol`, `.optimizer` and `.schedule`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo import encodings as encodings
    from zoo.data import Dataset as Dataset
    from zoo.data.algorithmic import Algorithmic as Algorithmic
    from zoo.data.text.datasets import TextDataset as TextDataset
    from zoo.encodings.base import Encoding as Encoding
    from zoo.encodings.base import Size as Size
    from zoo.encodings.context import AttentionContext as AttentionContext
    from zoo.encodings.context import per_query_and_key as per_query_and_key
    from zoo.encodings.wrapper import Wrapper as Wrapper
    from zoo.errors import InputError as InputError
    from zoo.errors import RunError as RunError
    from zoo.evaluation.protocols.protocol import Protocol as Protocol
    from zoo.models.standalone import encoding as encoding
    from zoo.notebook.commands import compare as compare
    from zoo.notebook.commands import evaluate as evaluate
    from zoo.notebook.commands import fit as fit
    from zoo.notebook.commands import results as results
    from zoo.notebook.run import Run as open  # noqa: F401
    from zoo.registry import register as register
    from zoo.runs.load import load as load
    from zoo.schedules import Schedule as Schedule
    from zoo.tasks import build as build
    from zoo.tasks.task import Task as Task

# Imported on first use: `zoo --help` must not wait for torch, nor a command for a module it does not need.
_MODULES = {
    "zoo.data": ["Dataset"],
    "zoo.data.algorithmic": ["Algorithmic"],
    "zoo.data.text.datasets": ["TextDataset"],
    "zoo.encodings.base": ["Encoding", "Size"],
    "zoo.encodings.context": ["AttentionContext", "per_query_and_key"],
    "zoo.encodings.wrapper": ["Wrapper"],
    "zoo.errors": ["InputError", "RunError"],
    "zoo.evaluation.protocols.protocol": ["Protocol"],
    "zoo.models.standalone": ["encoding"],
    "zoo.notebook.commands": ["compare", "evaluate", "fit", "results"],
    "zoo.registry": ["register"],
    "zoo.runs.load": ["load"],
    "zoo.schedules": ["Schedule"],
    "zoo.tasks": ["build"],
    "zoo.tasks.task": ["Task"],
}
_WHERE = {name: (module, name) for module, names in _MODULES.items() for name in names}
_WHERE["open"] = ("zoo.notebook.run", "Run")

# `from zoo import *` must not take Python's own `open` away.
__all__ = [*(name for name in _WHERE if name != "open"), "encodings"]


def __getattr__(name: str) -> Any:
    if name == "encodings":
        return import_module("zoo.encodings")
    if name not in _WHERE:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*_WHERE, "encodings", *(name for name in globals() if name.startswith("__"))})
