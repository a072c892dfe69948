"""`zoo gallery`: from the registry and the hand-written pages to a site."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from zoo import registry
from zoo.console import progress_bar
from zoo.errors import InputError, Problem
from zoo.files import made_complete, read_bytes, read_json
from zoo.gallery import encoding_page, other_pages, overview, results
from zoo.gallery.markdown import code
from zoo.gallery.pictures import figure_of, gallery_of, small_picture_of
from zoo.registry import Description

DOCS = Path(__file__).resolve().parents[2] / "docs"
"""The hand-written pages, beside the package in a checkout. Pages of some encodings are built without."""
GUIDES = {"choose.md": "Choose", "add.md": "Add your own", "speed.md": "Speed", "api.md": "API"}
MARK = "gallery.json"
"""The file by which a folder is known as a gallery, and may be replaced by another."""
PICTURE_BYTES = 4 << 20


def build(named: Sequence[str], out: Path) -> Path:
    """Build the gallery, or the pages of some encodings with the overview.

    Args:
        named: names of encodings, and Python files that register some; none: everything.
        out: the folder to write; one that holds another gallery is replaced.

    Returns:
        The path of its index.html.

    Raises:
        InputError: no such name or file, MkDocs is not installed, or `out` holds something else.
    """
    chosen = chosen_encodings(named)
    require_packages()
    validate_out(out)
    whole = not named and (DOCS / "choose.md").is_file()
    made, nav = {}, []
    built = {one.name for one in chosen}
    kinds = (registry.tasks, registry.protocols, registry.datasets) if whole else ()
    steps = len(chosen) + sum(len(kind.all()) for kind in kinds)
    # Each is made, and then each is written.
    with progress_bar(2 * steps, "gallery", "page") as bar:

        def told(what: str) -> None:
            bar.set_postfix_str(what, refresh=False)
            bar.update()

        made |= _encodings(chosen, built, whole, told)
        nav += _nav_of_encodings(chosen)
        if whole:
            made |= _others(told)
            made["tour.md"] = tour()
            nav += [{title: page} for page, title in GUIDES.items()] + [{"Tour": "tour.md"}]
            nav += [
                {"Tasks": _nav("tasks", registry.tasks)},
                {"Protocols": _nav("protocols", registry.protocols)},
                {"Datasets": _nav("datasets", registry.datasets)},
            ]
        made[MARK] = _mark(built)
        pages = sum(path.endswith(".md") for path in made)
        bar.total = steps + pages + (len(GUIDES) if whole else 0)
        _write(out, nav, made, whole, told)
    return out / "index.html"


def chosen_encodings(named: Sequence[str]) -> list[Description]:
    """The encodings of some names and files, in their order; all that are registered where none is named.

    Raises:
        InputError: with every name and file that is none.
    """
    if not named:
        return [registry.encodings.describe(name) for name in registry.encodings.names()]
    found: dict[str, Description] = {}
    problems: list[Problem] = []
    for one in named:
        try:
            if one.endswith(".py"):
                several = [new for new in registry.read_plugin(one) if new.kind == "encoding"]
                if not several:
                    raise InputError(f'{one}:1: no encoding here is decorated with @zoo.register("NAME")')
                found |= {new.name: new for new in several}
            else:
                found[one] = registry.encodings.describe(one)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return [*found.values()]


def require_packages() -> None:
    """Raises InputError where what builds the site is not installed."""
    needed = {"mkdocs": "mkdocs", "material": "mkdocs-material", "mkdocstrings": "mkdocstrings[python]",
              "latex2mathml": "latex2mathml"}  # fmt: skip
    missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise InputError(
            f"the gallery needs {', '.join(missing)}, not installed here; "
            "pip install 'positional-encoding-zoo[docs]'"
        )


def validate_out(out: Path) -> None:
    """Raises InputError where a folder holds something else than a gallery, which building would remove."""
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file():
        raise InputError(
            Problem(f"holds something else than a gallery (no {MARK}); choose another --out", where=str(out))
        )
    if out.exists() and not out.is_dir():
        raise InputError(Problem("is no folder; choose another --out", where=str(out)))


def _encodings(
    chosen: Sequence[Description], built: set[str], whole: bool, told: Callable[[str], None]
) -> dict[str, str | bytes]:
    made: dict[str, str | bytes] = {}
    thumbnails = {}
    families = overview.by_family([*registry.encodings.all().values()])

    def link(name: str) -> str:
        return f"[{code(name)}]({name}.md)" if name in built else code(name)

    studies = [
        study for study in results.STUDIES if whole or any(study in results.studies_with(n) for n in built)
    ]
    for study in studies:
        file = results.RESULTS / study.folder / "compare.png"
        if file.is_file():
            made[f"results/{study.folder}.png"] = read_bytes(file, PICTURE_BYTES)
    for one in chosen:
        told(one.name)
        figure = figure_of(encoding_page.spec_of(one))
        drawn, files = gallery_of(figure, one.name)
        made |= files
        thumbnails[one.name] = f"pictures/{one.name}.png"
        made[thumbnails[one.name]] = small_picture_of(figure)
        family = families[overview.family_of(one)]
        made[f"encodings/{one.name}.md"] = encoding_page.page(one, drawn, family, link)

    def from_index(name: str) -> str:
        return f"[{code(name)}](encodings/{name}.md)" if name in built else code(name)

    made["index.md"] = overview.page([*registry.encodings.all().values()], thumbnails, from_index, whole)
    return made


def _others(told: Callable[[str], None]) -> dict[str, str]:
    made = {}
    for folder, kind, page in (
        ("tasks", registry.tasks, other_pages.task_page),
        ("protocols", registry.protocols, other_pages.protocol_page),
        ("datasets", registry.datasets, other_pages.dataset_page),
    ):
        made[f"{folder}/index.md"] = other_pages.list_page(folder.capitalize(), LEADS[folder], kind, folder)
        for one in kind.all().values():
            told(one.name)
            made[f"{folder}/{one.name}.md"] = page(one)
    return made


LEADS = {
    "tasks": "What a model is asked to do. A recipe names it under `task`.",
    "protocols": "What a number means: each protocol asks another question about a length, and the output "
    "always says which. The same tokens are scored at every length, except in `per_position`.",
    "datasets": "What a model is trained and judged on. A recipe names it under `data.name`.",
}


def _nav_of_encodings(chosen: Sequence[Description]) -> list:
    families = [
        {family.capitalize(): [{one.name: f"encodings/{one.name}.md"} for one in members]}
        for family, members in overview.by_family(chosen).items()
    ]
    return [{"Encodings": ["index.md", *families]}]


def _nav(folder: str, kind: registry.Registry) -> list:
    return [f"{folder}/index.md", *({name: f"{folder}/{name}.md"} for name in kind.names())]


def tour() -> str:
    """The notebook as a page: its text, and its cells as code."""
    parts = ["[The notebook itself](tour.ipynb): it runs in a minute on two CPU cores."]
    for cell in read_json(DOCS / "tour.ipynb")["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    parts[:2] = [parts[1], parts[0]]  # its title first
    return "\n\n".join(parts) + "\n"


def _mark(built: set[str]) -> str:
    import json

    return json.dumps({"encodings": sorted(built)})


def _write(out: Path, nav: list, made: dict, whole: bool, told: Callable[[str], None]) -> None:
    """Build beside `out`, then let it take its place: a build that fails leaves what was there."""
    from zoo.gallery.site import write_site  # MkDocs, which may not be installed

    out = out.absolute()
    with tempfile.TemporaryDirectory() as empty:
        sources = DOCS if whole else Path(empty)
        if not out.exists():
            with made_complete(out) as folder:
                write_site(sources, folder, nav, made, whole, told)
            return
        new = out.with_name(f".{out.name}.new.{os.getpid()}")
        old = out.with_name(f".{out.name}.old.{os.getpid()}")
        with made_complete(new) as folder:
            write_site(sources, folder, nav, made, whole, told)
        os.rename(out, old)
        os.rename(new, out)
        shutil.rmtree(old)
