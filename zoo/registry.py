"""One registry for every kind of class that a recipe names.

The kinds are `encodings`, `datasets`, `tasks`, `protocols`, `optimizers` and `schedules`. Classes come from
the zoo, from a file that a recipe lists under `plugins:`, from installed packages with an entry point
(`zoo.encodings`, `zoo.datasets`, ...), and from the running program. The modules of a kind are imported when
the kind is first used. The options of a class are the typed keywords of its constructor.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import traceback
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from zoo.errors import InputError, nearest, shorten

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A valid name: it appears in commands, file names, tables and pages."""


class REQUIRED:
    """The default of an option that has none."""


@dataclass(frozen=True)
class Option:
    """A keyword of a constructor. `annotation` is `typing.Any` where there is none that can be resolved."""

    name: str
    annotation: Any
    default: Any = REQUIRED

    @property
    def wraps(self) -> bool:
        """Whether it holds another encoding, or several."""
        return holds_wrapped(self.annotation)


@dataclass(frozen=True, eq=False)
class Description:
    """A registered class. Its class attributes are attributes here, too: `description.family`."""

    kind: str
    name: str
    cls: type
    file: Path
    line: int

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_") or attribute == "cls":
            raise AttributeError(attribute)
        return getattr(self.cls, attribute)

    @functools.cached_property
    def options(self) -> tuple[Option, ...]:
        return options_of(self.cls)

    @property
    def wrapping(self) -> list[str]:
        """The options that hold other encodings."""
        return [option.name for option in self.options if option.wraps]

    @property
    def docstring(self) -> str:
        return inspect.cleandoc(self.cls.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, in one line."""
        return self.docstring.split("\n\n")[0].replace("\n", " ")

    @property
    def help(self) -> dict[str, str]:
        """The text on each option in the docstrings of the class and its ancestors."""
        docstrings = [inspect.cleandoc(vars(one).get("__doc__") or "") for one in self.cls.__mro__]
        return {name: text for one in reversed(docstrings) for name, text in _option_help(one).items()}

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def builtin(self) -> bool:
        """Whether it is one of the zoo's own."""
        return self.cls.__module__.startswith("zoo.")

    @property
    def package(self) -> str | None:
        """Name and version of the installed package that brings it; None for others."""
        return _packages.get(self.cls.__module__.split(".")[0])


_packages: dict[str, str] = {}
"""Name and version of each package with entry points, by its top-level module."""


class Registry:
    """The classes of one kind, by name.

    Args:
        kind: one word, as in messages; the kind of the decorator and of the entry-point group.
        package: the package or module of the zoo that registers this kind.
        base: `module:class` from which all classes derive.
    """

    def __init__(self, kind: str, package: str, base: str):
        self.kind, self.package, self.base = kind, package, base
        self.entries: dict[str, Description] = {}
        self._own_imported = self._installed_imported = False

    def register(self, name: str) -> Callable[[type], type]:
        """Class decorator: registers a class under a name.

        Raises:
            InputError: the name is taken by another class (both are named) or is not valid, or the class
                does not derive from the base of its kind.
        """
        if not isinstance(name, str):
            raise InputError(f'{name!r} is registered without a name: write @zoo.register("NAME")')
        if not NAME.fullmatch(name):
            rule = "up to 64 letters, digits and . _ -, the first a letter or digit"
            raise InputError(f"{name[:80]!r} is not a valid name of {self.kind}s: {rule}")

        def decorate(cls: type) -> type:
            module, _, base = self.base.partition(":")
            parent = getattr(importlib.import_module(module), base)
            if not (isinstance(cls, type) and issubclass(cls, parent)):
                raise InputError(f"{name!r} is registered for {cls!r}, which does not derive from {base}")
            new = Description(self.kind, name, cls, *class_location(cls))
            if not new.builtin:
                self._import_own()
            known = self.entries.get(name)
            # The same class again (a plugin file run again, a notebook's cell) replaces itself.
            if known is not None and (known.file, known.cls.__name__) != (new.file, cls.__name__):
                both = " and ".join(f"{one.cls.__name__} ({one.where})" for one in (known, new))
                raise InputError(f"two {self.kind}s are called {name!r}: {both}; rename one")
            cls.name = name
            self.entries[name] = new
            return cls

        return decorate

    def all(self) -> dict[str, Description]:
        """Every description by name, the zoo's own first.

        Raises InputError for an installed package that cannot be used.
        """
        self._import_own()
        self._import_installed()
        return self.entries

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self.all())

    def describe(self, name: str) -> Description:
        """The description of a name; InputError with the nearest name where there is none."""
        if name not in self.all():
            raise InputError(self.unknown(name))
        return self.entries[name]

    def load(self, name: str) -> type:
        """The class of a name; InputError with the nearest name where there is none."""
        return self.describe(name).cls

    def unknown(self, name: str) -> str:
        """The message for a name that is not registered."""
        near = nearest(name, self.names())
        hint = f"did you mean {near!r}?"
        if near is None:
            hint = f"there are: {', '.join(self.names())} (one of your own: `plugins: [my_{self.kind}.py]`)"
        return f"no {self.kind} {shorten(name, 100)!r}; {hint}"

    def _import_own(self) -> None:
        if self._own_imported:
            return
        module = importlib.import_module(self.package)
        for one in pkgutil.walk_packages(getattr(module, "__path__", []), f"{self.package}."):
            importlib.import_module(one.name)
        self._own_imported = True

    def _import_installed(self) -> None:
        if self._installed_imported:
            return
        self._installed_imported = True
        for point in entry_points(group=f"zoo.{self.kind}s"):
            package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
            _packages.setdefault(point.module.split(".")[0], package)
            try:
                module = importlib.import_module(point.module)
                file = Path(module.__file__ or "").resolve()
                if not any(one.file == file for one in self.entries.values()):
                    decorator = "register" if self.kind == "encoding" else f"register.{self.kind}"
                    raise InputError(f'{file}:1: no class is decorated with @zoo.{decorator}("NAME")')
            except (Exception, SystemExit) as error:
                self._installed_imported = False
                why = f"{_place(error)}{_cause(error)}"
                raise InputError(f"package {package} cannot be used: {why}; mend or uninstall it") from error


encodings = Registry("encoding", "zoo.encodings", "zoo.encodings.base:Encoding")
datasets = Registry("dataset", "zoo.data", "zoo.data:Dataset")
tasks = Registry("task", "zoo.tasks", "zoo.tasks.task:Task")
optimizers = Registry("optimizer", "zoo.optimizers", "torch.optim:Optimizer")
schedules = Registry("schedule", "zoo.schedules", "zoo.schedules:Schedule")
protocols = Registry("protocol", "zoo.evaluation.protocols", "zoo.evaluation.protocols.protocol:Protocol")

KINDS = {kind.kind: kind for kind in (encodings, datasets, tasks, protocols, optimizers, schedules)}


class _Register:
    """`@zoo.register("name")` registers an encoding, `@zoo.register.dataset("name")` a dataset, and so on."""

    def __call__(self, name: str) -> Callable[[type], type]:
        return encodings.register(name)

    def __getattr__(self, kind: str) -> Callable[[str], Callable[[type], type]]:
        if kind not in KINDS:
            raise AttributeError(f"no kind {kind!r} of registered classes; there are: {', '.join(KINDS)}")
        return KINDS[kind].register


register = _Register()


def load_plugin(path: str | Path) -> list[Description]:
    """Import a Python file, once in a process, and give the classes that it registers.

    Raises:
        InputError: the file cannot be imported, registers nothing, or a name is taken or not valid.
    """
    path = Path(path).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise InputError(f"{path}: {'no such file' if path.suffix == '.py' else 'a plugin is a Python file'}")
    if not _registered_in(path):
        with _undone_on_error():
            _import_file(path)
    found = _registered_in(path)
    if not found:
        raise InputError(f'{path}:1: no class here is decorated with @zoo.register("NAME")')
    return found


def _registered_in(file: Path) -> list[Description]:
    return [one for kind in KINDS.values() for one in kind.entries.values() if one.file == file]


def _import_file(file: Path) -> None:
    name = f"zoo_plugin_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        place = _place(error) or f"{file}:1: "
        raise InputError(f"{place}the plugin cannot be imported: {_cause(error)}") from error


def _place(error: BaseException) -> str:
    """File and line of the last code outside the zoo that ran before an error, or of a syntax error."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: "
    own = ("<frozen", importlib.__file__, str(Path(__file__).resolve().parent))
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(own)]
    return f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""


def _cause(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"not Python: {error.msg}"
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


@contextmanager
def _undone_on_error() -> Iterator[None]:
    """Undo all registrations of the block where it raises."""
    before = {kind: dict(kind.entries) for kind in KINDS.values()}
    try:
        yield
    except BaseException:
        for kind, entries in before.items():
            kind.entries = {name: one for name, one in kind.entries.items() if one.builtin} | entries
        raise


def class_location(cls: type) -> tuple[Path, int]:
    """File and line of a class; in an interactive session, which has no file, the module's name and 1."""
    try:
        file = Path(inspect.getsourcefile(cls) or "").resolve()
        lines, first = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return Path(f"<{cls.__module__}>"), 1
    # The decorators stand above the line that names the class.
    return file, first + next(i for i, line in enumerate(lines) if line.lstrip().startswith("class "))


def options_of(cls: type) -> tuple[Option, ...]:
    """The keywords of a constructor and, where that takes `**more`, those of its ancestors'."""
    options: dict[str, Option] = {}
    for ancestor in cls.__mro__:
        # Constructors of other libraries (torch's modules and optimizers) are not options.
        if "__init__" not in vars(ancestor) or ancestor.__module__.split(".")[0] not in (
            "zoo", cls.__module__.split(".")[0],
        ):  # fmt: skip
            continue
        for one in keywords_of(ancestor):
            options.setdefault(one.name, one)
        parameters = inspect.signature(ancestor.__init__).parameters.values()
        if all(one.kind is not one.VAR_KEYWORD for one in parameters):
            break
    return tuple(options.values())


def keywords_of(cls: type) -> Iterator[Option]:
    """The parameters of a constructor that are keyword-only or have a default."""
    for one in inspect.signature(cls.__init__).parameters.values():
        has_default = one.default is not one.empty
        if one.kind is one.KEYWORD_ONLY or (one.kind is one.POSITIONAL_OR_KEYWORD and has_default):
            yield Option(one.name, _resolved(one, cls), one.default if has_default else REQUIRED)


def _resolved(parameter: inspect.Parameter, cls: type) -> Any:
    """The type that an annotation names; `typing.Any` where only a type checker can follow it."""
    if parameter.annotation is parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    names = inspect.unwrap(cls.__init__).__globals__
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except (NameError, TypeError, AttributeError):
        return Any


def _option_help(docstring: str) -> dict[str, str]:
    """The texts of the `Args:` of a docstring, or of the `Options:` of an encoding's, by option."""
    _, *section = re.split(r"\n(?:Args|Options):\n", docstring, maxsplit=1)
    # It ends at the first line that is not indented.
    arguments = re.split(r"^\S", section[0], maxsplit=1, flags=re.MULTILINE)[0] if section else ""
    found = re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def is_encoding(annotation: Any) -> bool:
    """Whether an annotation is the class of encodings."""
    return isinstance(annotation, type) and any(one.__qualname__ == "Encoding" for one in annotation.__mro__)


def holds_wrapped(annotation: Any) -> bool:
    """Whether an option of this type holds another encoding, or several."""
    return is_encoding(annotation) or any(map(holds_wrapped, typing.get_args(annotation)))


def holds_several(annotation: Any) -> bool:
    """Whether an option of this type may hold a list of encodings."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(map(holds_several, typing.get_args(annotation)))
    return not is_encoding(annotation) and holds_wrapped(annotation)
