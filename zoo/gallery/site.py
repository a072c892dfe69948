"""The site as MkDocs builds it: its configuration, and the pages that are made and never written."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from mkdocs.commands.build import build as build_site
from mkdocs.config import load_config
from mkdocs.exceptions import MkDocsException
from mkdocs.plugins import BasePlugin
from mkdocs.structure.files import File, Files

from zoo.errors import RunError
from zoo.files import read_text

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
ASSETS = ("gallery.css", "sort.js")
MAX_BYTES = 4 << 20
PICTURE = re.compile(r"\.\./scripts/results/(\w+)/compare\.png")
"""The path of a plot in the repository; the site has its own copies."""


class Pages(BasePlugin):
    """Gives MkDocs the pages and pictures that were made.

    Args:
        made: content by path in the site's sources.
        told: called with the address of each page that is written.
    """

    def __init__(self, made: Mapping[str, str | bytes], told: Callable[[str], object]):
        super().__init__()
        self.made, self.told = made, told

    def on_files(self, files: Files, *, config: Any) -> Files:
        for path, content in self.made.items():
            files.append(File.generated(config, path, content=content))
        return files

    def on_page_markdown(self, markdown: str, *, page: Any, config: Any, files: Files) -> str:
        return PICTURE.sub(r"results/\1.png", markdown)

    def on_post_page(self, output: str, *, page: Any, config: Any) -> str:
        self.told(page.file.dest_uri)
        return output


def configuration(sources: Path, out: Path, nav: list, api: bool) -> dict[str, Any]:
    """MkDocs' configuration. Nothing in the site is loaded from elsewhere, fonts included."""
    plugins: list[Any] = ["search"]
    if api:
        options = {
            "show_source": False,
            "show_root_heading": True,
            "show_root_full_path": False,
            "heading_level": 3,
            "members_order": "source",
            "separate_signature": True,
            "show_signature_annotations": True,
            "docstring_section_style": "list",
            "filters": ["!^_"],
        }
        python = {"paths": [str(ROOT)], "options": options, "inventories": []}
        plugins.append({"mkdocstrings": {"handlers": {"python": python}}})
    modes = [
        ("(prefers-color-scheme: light)", "default", "dark", "material/weather-night"),
        ("(prefers-color-scheme: dark)", "slate", "light", "material/weather-sunny"),
    ]
    return {
        "site_name": "Positional-encoding zoo",
        "site_description": "Positional encodings of transformers, drawn and measured.",
        "docs_dir": str(sources),
        "site_dir": str(out),
        "use_directory_urls": False,  # so that it opens from disk
        "nav": nav,
        "strict": True,
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.tabs", "navigation.top", "navigation.indexes", "toc.follow"],
            "icon": {"logo": "material/sine-wave"},
            "palette": [
                {
                    "media": media,
                    "scheme": scheme,
                    "primary": "indigo",
                    "accent": "indigo",
                    "toggle": {"icon": icon, "name": f"Switch to {other} mode"},
                }
                for media, scheme, other, icon in modes
            ],
        },
        "extra_css": ["assets/gallery.css"],
        "extra_javascript": ["assets/sort.js"],
        "extra": {"generator": False},
        "markdown_extensions": [
            "attr_list",
            "md_in_html",
            "tables",
            "admonition",
            {"toc": {"permalink": True}},
            {"pymdownx.highlight": {"anchor_linenums": False}},
            "pymdownx.superfences",
        ],
        "plugins": plugins,
        "validation": {
            "nav": {"omitted_files": "info", "not_found": "warn"},
            "links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"},
        },
    }  # fmt: skip


class _Heard(logging.Handler):
    """Keeps warnings, which a strict build fails of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def write_site(
    sources: Path,
    out: Path,
    nav: list,
    made: Mapping[str, str | bytes],
    api: bool,
    told: Callable[[str], object],
) -> None:
    """Build the site into the folder `out`.

    Args:
        sources: folder of the hand-written pages.
        made: further pages and pictures, by path.
        api: whether there are pages with the API.
        told: called for each page that is written.

    Raises:
        RunError: MkDocs warns of something, such as a link that leads nowhere.
    """
    assets = {f"assets/{name}": read_text(HERE / name, MAX_BYTES) for name in ASSETS}
    text = yaml.safe_dump(configuration(sources, out, nav, api), allow_unicode=True)
    heard, log = _Heard(), logging.getLogger("mkdocs")
    log.addHandler(heard)
    propagates, log.propagate = log.propagate, False
    try:
        config = load_config(io.BytesIO(text.encode()))
        config.plugins["zoo"] = Pages({**made, **assets}, told)
        config.plugins.run_event("startup", command="build", dirty=False)
        build_site(config)
    except (MkDocsException, SystemExit) as error:
        raise RunError("\n".join(["the gallery cannot be built:", *(heard.said or [str(error)])])) from error
    finally:
        log.removeHandler(heard)
        log.propagate = propagates
