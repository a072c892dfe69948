"""Which positional encodings there are, and what each one takes.

The registry reads plugin files without running them: names, facts and options come from the source, so that
recipes are checked, and encodings listed, before torch is imported. A plugin's code runs only when it is
built.

Plugins are found in four places: the files of this package; a file that a recipe names under `plugins:`;
installed packages that advertise a module in the entry-point group `zoo.encodings`; and the running program,
where a class is decorated in a notebook or a script.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.encodings.description import (
    FACTS,
    WRAPPED,
    Description,
    describe_class,
    fault_of_name,
    holds_several,
    holds_wrapped,
    place,
    read_classes,
    read_descriptions,
)
from zoo.encodings.installed import Installed, read_installed
from zoo.errors import InputError, Problem
from zoo.signatures import REQUIRED, Option

if TYPE_CHECKING:
    from zoo.encodings.base import Encoding

__all__ = [
    "FACTS",
    "REQUIRED",
    "WRAPPED",
    "Description",
    "Option",
    "broken",
    "describe",
    "holds_several",
    "holds_wrapped",
    "load",
    "names",
    "read_plugin",
    "register",
    "unknown",
]

LONGEST = 100
"""Characters of a name that is not known that are shown."""
PACKAGE = Path(__file__).resolve().parent

_classes: dict[str, type[Encoding]] = {}
_live: dict[str, Description] = {}
_plugins: dict[str, Description] = {}


def register(name: str) -> Callable[[type[Encoding]], type[Encoding]]:
    """Class decorator: makes an `Encoding` known under a name.

    Raises:
        InputError: the name belongs to another class already (both are named) or is none that an encoding
            can have, or the class is no `Encoding`.
    """
    fault = fault_of_name(name)
    if fault is not None:
        raise InputError(fault)

    def decorate(cls: type[Encoding]) -> type[Encoding]:
        # Imported here: whoever decorates a class has torch loaded already.
        from zoo.encodings.base import Encoding

        if not (isinstance(cls, type) and issubclass(cls, Encoding)):
            raise InputError(f"{name!r} is registered for {cls!r}, which does not derive from zoo.Encoding")
        known = _all().get(name)
        # The same class met twice (a plugin file run again, a notebook's cell) replaces itself.
        if known is not None and not _is_home(cls, known):
            file, line = place(cls)
            raise InputError(
                f"two encodings are called {name!r}: {known.class_name} ({known.where}) and "
                f"{cls.__name__} ({file}:{line}); rename one"
            )
        cls.name = name
        _classes[name] = cls
        if known is None or name in _live:
            _live[name] = describe_class(name, cls)
        return cls

    return decorate


def names() -> list[str]:
    """Every known name, sorted."""
    return sorted(_all())


def broken() -> dict[str, str]:
    """Installed plugins that could not be read, or whose name is taken: the name, and why."""
    return dict(_installed().broken)


def describe(name: str) -> Description:
    """What the encoding of this name says of itself.

    Raises:
        InputError: there is none; the nearest name is suggested.
    """
    known = _all()
    if name in known:
        return known[name]
    raise InputError(unknown(name))


def unknown(name: str) -> str:
    """The message for a name that is not registered."""
    unread = broken()
    if name in unread:
        return f"encoding {name!r} cannot be used: {unread[name]}"
    name = name if len(name) <= LONGEST else f"{name[:LONGEST]}..."
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names())}"
    # What a file that cannot be read would have registered is not known: it may be what is asked for.
    also = "".join(f"; cannot be used: {why}" for why in unread.values())
    return f"no encoding {name!r}; {hint} (one of your own: `plugins: [my_encoding.py]`){also}"


def read_plugin(path: str | Path) -> list[Description]:
    """Make the encodings of a Python file known, by reading it; nothing in it is run.

    Raises:
        InputError: no such file, a syntax error in it, no encoding in it, or a name that is taken or is none.
    """
    try:
        path = Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that go round
        raise InputError(f"{path}: no file of a plugin ({error})") from error
    if path.suffix != ".py":
        raise InputError(f"{path}: a plugin is a Python file, *.py")
    found = read_descriptions(path, _package())
    if not found:
        raise InputError(f'{path}:1: no class here is decorated with @zoo.register("NAME")')
    taken = {name: known for name, known in _all().items() if known.file != path}
    problems = []
    for new in found:
        if new.name in taken:
            message = f"the name {new.name!r} is taken by {taken[new.name].where}; choose another"
            problems.append(Problem(message, where=new.where))
        taken[new.name] = new
    if problems:
        raise InputError(problems)
    _plugins.update({new.name: new for new in found})
    return found


def load(name: str) -> type[Encoding]:
    """The class itself; imports the file that holds it.

    Raises:
        InputError: no such name, or its file cannot be imported (the cause is told).
    """
    description = describe(name)
    if name not in _classes:
        _run(description)
    if name not in _classes:
        raise InputError(f"{description.where}: {name!r} is not registered when the file is run")
    return _classes[name]


def _run(description: Description) -> None:
    file, module_name = description.file, description.module
    if description.builtin:
        # A fault in here is ours, and keeps its traceback.
        importlib.import_module(module_name)
        return
    try:
        if module_name is not None:
            importlib.import_module(module_name)
        else:
            _run_file(file)
    except (Exception, SystemExit) as error:
        # A stranger's package may stop the program too, and still breaks only itself.
        of = f"package {description.package}: " if description.package else ""
        cause = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        message = f"{of}{file}:{_faulty_line(error, file)}: the plugin cannot be imported: {cause}"
        raise InputError(message) from error


def _faulty_line(error: BaseException, file: Path) -> int:
    """The last line of the file that ran before the error; 1 where none did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file and frame.lineno]
    return lines[-1] if lines else 1


def _run_file(file: Path) -> None:
    module_name = f"zoo_plugin_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise


def _is_home(cls: type[Encoding], known: Description) -> bool:
    """Whether this class is the one that was described."""
    return (place(cls)[0], cls.__name__) == (known.file, known.class_name)


def _all() -> dict[str, Description]:
    return {**_builtin(), **_installed().found, **_live, **_plugins}


def _files() -> list[Path]:
    """The zoo's own files: here what all encodings stand on, in the folders below the encodings by family."""
    return sorted([*PACKAGE.glob("*.py"), *PACKAGE.glob("*/*.py")])


@lru_cache(maxsize=1)
def _package() -> dict[str, ast.ClassDef]:
    """The classes of this package, from which a plugin's may derive."""
    return {name: node for file in _files() for name, node in read_classes(file).items()}


@lru_cache(maxsize=1)
def _builtin() -> dict[str, Description]:
    found: dict[str, Description] = {}
    for file in _files():
        module = ".".join(("zoo.encodings", *file.relative_to(PACKAGE).with_suffix("").parts))
        for new in read_descriptions(file, _package(), module):
            if new.name in found:
                raise InputError(f"{new.where}: the name {new.name!r} is taken by {found[new.name].where}")
            found[new.name] = new
    return found


@lru_cache(maxsize=1)
def _installed() -> Installed:
    return read_installed(_builtin(), _package())
