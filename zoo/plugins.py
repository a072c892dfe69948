"""Code from outside the zoo: reading what installed packages advertise, and importing a plugin's file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path

from zoo.description import Description
from zoo.errors import InputError


def import_file_of(description: Description) -> None:
    """Run the file that holds a class, which registers it.

    Raises:
        InputError: a file that is not the zoo's own cannot be imported, with the line and the cause.
    """
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
        # A package that calls sys.exit breaks only itself, too.
        of = f"package {description.package}: " if description.package else ""
        line = _last_line(error, file)
        raise InputError(f"{of}{file}:{line}: the plugin cannot be imported: {_cause(error)}") from error


def _run_file(file: Path) -> None:
    module_name = f"zoo_plugin_{file.stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise


def _cause(error: BaseException) -> str:
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


def _last_line(error: BaseException, file: Path) -> int:
    """The last line of the file that ran before the error; 1 where none did."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file and frame.lineno]
    return lines[-1] if lines else 1


def read_entry_points(
    group: str,
    read: Callable[[Path, str, str], list[Description]],
    decorator: str,
    shipped: Mapping[str, Description],
) -> tuple[dict[str, Description], dict[str, str]]:
    """What installed packages register of one kind, read from the source of the modules that they advertise:

        [project.entry-points."zoo.encodings"]
        root = "their_package.root"

    Args:
        group: of the entry points, as `zoo.encodings`.
        read: gives what a file registers, from its path, module and package.
        decorator: by which a class is registered.
        shipped: the zoo's own, whose names are taken.

    Returns: the descriptions by name; and what cannot be used, with the reason. A package that cannot be read
    breaks only itself. Of several classes with one name none is taken: which came first would depend on the
    order of installation.
    """
    claims: dict[str, list[Description]] = {}
    broken: dict[str, list[str]] = {}
    for point in entry_points(group=group):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        try:
            found = read(_source_of(point.module), point.module, package)
            if not found:
                raise InputError(
                    f'no class in {point.module} is decorated with @{decorator}("NAME"); '
                    f"the module to advertise is the one that holds it"
                )
        except Exception as error:
            broken.setdefault(point.name, []).append(f"package {package}: {_cause(error)}")
            continue
        for new in found:
            claims.setdefault(new.name, []).append(new)
    usable = {}
    for name, several in claims.items():
        origins = list(dict.fromkeys(f"package {one.package} ({one.where})" for one in several))
        if name in shipped:
            taken = f"the name {name!r} is taken by {shipped[name].where}"
            broken.setdefault(name, []).extend(f"{origin}: {taken}" for origin in origins)
        elif len(origins) > 1:
            message = f"the name {name!r} is claimed by {' and by '.join(origins)}; uninstall all but one"
            broken.setdefault(name, []).append(message)
        else:
            usable[name] = several[0]
    return usable, {name: "; ".join(causes) for name, causes in broken.items()}


def _source_of(module: str) -> Path:
    """The source file of a module. Its parent packages are not imported: that would run their code."""
    top, *below = module.split(".")
    spec, name = importlib.util.find_spec(top), top
    for part in below:
        if spec is None:
            break
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise InputError(f"no module {module!r}")
    return Path(spec.origin).resolve()
