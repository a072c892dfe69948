"""Reading a built site: its pages, their links, and the links that are broken."""

import html
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("image", "href")}


@dataclass
class Page(HTMLParser):
    """One page: the ids in it, where it links, and what a browser loads for it."""

    text: str
    ids: set = field(default_factory=set)
    links: list = field(default_factory=list)
    loads: list = field(default_factory=list)

    def __post_init__(self):
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in ("next", "prev", "canonical"):
            self.loads.append(given["href"])
        self.loads += [given[key] for one, key in LOADED if one == tag and given.get(key)]


def pages_of(site):
    """The pages by path, without the page for error 404."""
    found = {file.relative_to(site): Page(file.read_text()) for file in sorted(site.rglob("*.html"))}
    return {path: page for path, page in found.items() if path.name != "404.html"}


def broken_links(site):
    """`page: link` for each link, picture, style and script that leads to no file or to no place in it."""
    pages = pages_of(site)
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "data"):
                continue
            target = path if not parts.path else Path(*_resolved(path.parent, unquote(parts.path)))
            target = target / "index.html" if (site / target).is_dir() else target
            there = (site / target).is_file()
            if there and parts.fragment and target in pages:
                there = unquote(parts.fragment) in pages[target].ids
            if not there:
                yield f"{path}: {link}"


def _resolved(folder, relative):
    parts = list(folder.parts)
    for part in Path(relative).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return parts or ["."]


def loaded_from_elsewhere(site):
    """What a browser would load from another machine: in pages, and by the styles."""
    for path, page in pages_of(site).items():
        yield from (f"{path}: {url}" for url in page.loads if urlsplit(url).netloc)
    for style in site.rglob("*.css"):
        for begin in ("url(", "@import "):
            for part in style.read_text().split(begin)[1:]:
                if part.lstrip("'\" ").startswith(("http", "//")):
                    yield f"{style}: {part[:60]}"


def words_of(page):
    """What a page says, without its tags."""
    return html.unescape(re.sub("<[^>]+>", "", page))
