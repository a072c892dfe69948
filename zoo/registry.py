"""One registry for every kind of thing that a recipe names.

The kinds are `encodings`, `datasets`, `tasks`, `protocols`, `optimizers` and `schedules`. The registry reads
source files without running them: names, facts and options come from the source, so that recipes are checked,
and everything is listed, before torch is imported. A class's file runs only when the class is needed.

A class comes from one of four sources: the zoo itself; a file that a recipe names under `plugins:`; installed
packages that advertise a module in an entry-point group (`zoo.encodings`, `zoo.datasets`, ...); and the
running program, where a class is decorated in a notebook or a script.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo.description import Description, describe_class, read_classes, read_descriptions
from zoo.errors import InputError, Problem, nearest, shorten
from zoo.plugins import import_file_of, read_entry_points
from zoo.signatures import REQUIRED, UNREAD, WRAPPED, Option, holds_several, holds_wrapped

__all__ = [
    "KINDS", "REQUIRED", "UNREAD", "WRAPPED", "Description", "Option", "Registry", "datasets", "encodings",
    "holds_several", "holds_wrapped", "optimizers", "protocols", "read_plugin", "register", "schedules",
    "tasks",
]  # fmt: skip

ROOT = Path(__file__).resolve().parent
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A valid name: it stands in commands, files, tables and pages."""


class Registry:
    """The classes of one kind, by name.

    Args:
        kind: one word, as in messages; the kind of the decorator and of the entry-point group.
        package: the package of the zoo whose files register this kind.
        base: `module:class` from which all classes derive.
        facts: the class attributes by which a class says what others need to know of it, with defaults.
            Their values are literals.
    """

    def __init__(self, kind: str, package: str, base: str, facts: Mapping[str, Any]):
        self.kind, self.package, self.base, self.facts = kind, package, base, facts
        self.classes: dict[str, type] = {}
        """Classes whose file has run."""
        self.added: dict[str, Description] = {}
        """From plugin files and from the running program."""

    def register(self, name: str) -> Callable[[type], type]:
        """Class decorator: registers a class under a name.

        Raises:
            InputError: the name is taken by another class (both are named) or is not valid, or the class
                does not derive from the base of its kind.
        """
        self._validate_name(name)

        def decorate(cls: type) -> type:
            module, _, base = self.base.partition(":")
            if not issubclass(cls, getattr(importlib.import_module(module), base)):
                raise InputError(f"{name!r} is registered for {cls!r}, which does not derive from {base}")
            known, new = self.all().get(name), self.describe_class(name, cls)
            # The same class again (a plugin file run again, a notebook's cell) replaces itself.
            if known is not None and (known.file, known.class_name) != (new.file, new.class_name):
                raise InputError(
                    f"two {self.kind}s are called {name!r}: {known.class_name} ({known.where}) and "
                    f"{new.class_name} ({new.where}); rename one"
                )
            cls.name = name
            self.classes[name] = cls
            if known is None or name in self.added:
                self.added[name] = new
            return cls

        return decorate

    def all(self) -> dict[str, Description]:
        """Every description by name."""
        return {**self.shipped, **self.installed, **self.added}

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self.all())

    def describe(self, name: str) -> Description:
        """The description of a name; InputError with the nearest name where there is none."""
        known = self.all().get(name)
        if known is None:
            raise InputError(self.unknown(name))
        return known

    def unknown(self, name: str) -> str:
        """The message for a name that is not registered."""
        if name in self.broken:
            return f"{self.kind} {name!r} cannot be used: {self.broken[name]}"
        near = nearest(name, self.names())
        hint = f"did you mean {near!r}?"
        if near is None:
            hint = f"there are: {', '.join(self.names())} (one of your own: `plugins: [my_{self.kind}.py]`)"
        # What a file that cannot be read would have registered is not known: it may be what is asked for.
        also = "".join(f"; cannot be used: {why}" for why in self.broken.values())
        return f"no {self.kind} {shorten(name, 100)!r}; {hint}{also}"

    def load(self, name: str) -> type:
        """The class itself; imports the file that holds it. InputError with the cause where that fails."""
        description = self.describe(name)
        if name not in self.classes:
            import_file_of(description)
        if name not in self.classes:
            raise InputError(f"{description.where}: {name!r} is not registered when the file is run")
        return self.classes[name]

    def describe_class(self, name: str, cls: type) -> Description:
        return describe_class(self.kind, name, cls, self.facts)

    def read(self, file: Path, module: str | None = None, package: str | None = None) -> list[Description]:
        """What a Python file registers of this kind; nothing in it is run.

        Raises:
            InputError: it cannot be read, a name is not valid, or a fact is no literal.
        """
        found = read_descriptions(file, self.kind, self.facts, self.zoo_classes)
        for one in found:
            self._validate_name(one.name, one.where)
        return [replace(one, module=module, package=package) for one in found]

    @cached_property
    def zoo_classes(self) -> dict[str, ast.ClassDef]:
        """The classes of the zoo's package of this kind, from which those of a plugin may derive."""
        return {name: node for file in self._files() for name, node in read_classes(file).items()}

    @cached_property
    def shipped(self) -> dict[str, Description]:
        """The zoo's own."""
        modules = {
            file: ".".join(file.relative_to(ROOT.parent).with_suffix("").parts) for file in self._files()
        }
        return {new.name: new for file, module in modules.items() for new in self.read(file, module)}

    @property
    def installed(self) -> dict[str, Description]:
        """Those of installed packages."""
        return self._installed[0]

    @property
    def broken(self) -> dict[str, str]:
        """What installed packages bring and cannot be used: the name, and why."""
        return self._installed[1]

    @cached_property
    def _installed(self) -> tuple[dict[str, Description], dict[str, str]]:
        return read_entry_points(f"zoo.{self.kind}s", self.read, self.decorator, self.shipped)

    @property
    def decorator(self) -> str:
        return "zoo.register" if self.kind == "encoding" else f"zoo.register.{self.kind}"

    @property
    def article(self) -> str:
        return "an" if self.kind[0] in "aeiou" else "a"

    def _files(self) -> list[Path]:
        path = ROOT.joinpath(*self.package.split(".")[1:])
        return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]

    def _validate_name(self, name: str, where: str | None = None) -> None:
        if not NAME.fullmatch(name):
            rule = "it has up to 64 letters, digits and . _ -, and begins with a letter or digit"
            message = f"no name for {self.article} {self.kind}: {name[:80]!r}; {rule}"
            raise InputError(Problem(message, where=where))


encodings = Registry(
    "encoding",
    "zoo.encodings",
    "zoo.encodings.base:Encoding",
    {
        "paper": "",
        "formula": "",
        "family": "",
        "decoder": True,
        "encoder": True,
        "relative": False,
        "extrapolates": "no",
        "distance_only": False,
        "per_layer": False,
        "after_training": (),
        "learns": "",
        "replaces": (),
    },
)

datasets = Registry(
    "dataset",
    "zoo.data",
    "zoo.data:Dataset",
    {"gives": "", "source": "generated", "imports_torch": True, "text_options": ()},
)
tasks = Registry(
    "task",
    "zoo.tasks",
    "zoo.tasks.task:Task",
    {"takes": "", "kinds": ("decoder",), "protocols": (), "hides_tokens": False},
)
optimizers = Registry("optimizer", "zoo.optimizers", "torch.optim:Optimizer", {"paper": ""})
schedules = Registry("schedule", "zoo.schedules", "zoo.schedules:Schedule", {"paper": ""})
protocols = Registry(
    "protocol",
    "zoo.evaluation.protocols",
    "zoo.evaluation.protocols.protocol:Protocol",
    {
        "axis": "length",
        "unit": "documents",
        "higher_is_better": False,
        "needs": "text",
        "first_plan_only": False,
        "explanation": "",
    },
)

KINDS = {kind.kind: kind for kind in (encodings, datasets, tasks, protocols, optimizers, schedules)}


class _Register:
    """`@zoo.register("name")` registers an encoding, `@zoo.register.dataset("name")` a dataset, and so on."""

    def __call__(self, name: str) -> Callable[[type], type]:
        return encodings.register(name)

    def __getattr__(self, kind: str) -> Callable[[str], Callable[[type], type]]:
        if kind not in KINDS:
            raise AttributeError(f"nothing is registered as {kind!r}; there are: {', '.join(KINDS)}")
        return KINDS[kind].register


register = _Register()


def read_plugin(path: str | Path) -> list[Description]:
    """Add what a Python file registers, of any kind, by reading it; nothing in it is run.

    Raises:
        InputError: it cannot be read, nothing is registered in it, or a name is taken or not valid.
    """
    try:
        path = Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that go round
        raise InputError(f"{path}: no file of a plugin ({error})") from error
    if path.suffix != ".py":
        raise InputError(f"{path}: a plugin is a Python file, *.py")
    found = {registry: registry.read(path) for registry in KINDS.values()}
    if not any(found.values()):
        raise InputError(f'{path}:1: no class here is decorated with @zoo.register("NAME")')
    problems = []
    for registry, several in found.items():
        taken = {name: known for name, known in registry.all().items() if known.file != path}
        for new in several:
            if new.name in taken:
                message = f"the name {new.name!r} is taken by {taken[new.name].where}; choose another"
                problems.append(Problem(message, where=new.where))
            taken[new.name] = new
    if problems:
        raise InputError(problems)
    for registry, several in found.items():
        registry.added.update({new.name: new for new in several})
    return [new for several in found.values() for new in several]
