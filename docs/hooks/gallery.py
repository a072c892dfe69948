"""MkDocs hook: a page for each encoding and each stored study, and tables made from the code.

A page of docs/ has a table between `<!-- table: NAME -->` and `<!-- end -->`; `TABLES` has the names.
`python docs/hooks/gallery.py` writes them into the pages, for readers of the files; a test compares them.
"""

from __future__ import annotations

import contextlib
import csv
import inspect
import io
import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import zoo
from zoo import registry
from zoo.cli import main
from zoo.commands.listing import type_text
from zoo.encodings.base import Encoding, Size
from zoo.encodings.parameters import HEADS, LAYERS, LENGTH, WIDTH, representative
from zoo.encodings.stack import EncodingStack
from zoo.recipe.encoding import check_encoding
from zoo.registry import Description

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "scripts" / "results"
FAMILIES = {
    "absolute": "Adds a vector for each position to the token vectors, or nothing.",
    "position ids": "Changes the position ids that another encoding reads.",
    "rotary": "Rotates queries and keys by their positions.",
    "bias": "Adds a number for each pair of positions to the scores.",
    "content": "Adds a term that depends on the distance and on the query or the key.",
    "contextual": "Computes distances from the content of the tokens.",
    "weights": "Computes attention weights from the scores by another function than the softmax.",
    "schedule": "Assigns encodings to layers, to heads, or to phases of the training.",
}
BEYOND = {
    "yes": "published results claim that it works",
    "no": "it is defined, without a claim",
    "policy": "an option decides",
}
PAPER = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]+)?\)")
MARKED = re.compile(r"<!-- table: ([\w-]+) -->.*?<!-- end -->", re.DOTALL)
OPTIONS = re.compile(r"^(?:Options|Args):\n((?:(?: +.*)?(?:\n|$))*)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    sections = {title: pages for entry in config.nav for title, pages in entry.items()}
    for family, names in by_family().items():
        sections["Encodings"].append(
            {family.capitalize(): [{name: f"encodings/{name}.md"} for name in names]}
        )
    sections["Results"] += [{name: f"results/{name}/compare.md"} for name in studies()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of encodings with their figures, and pages and results from outside docs/."""
    for name in registry.encodings.names():
        files.append(File.generated(config, f"encodings/{name}.md", content=encoding_page(name)))
        files.append(File.generated(config, f"encodings/{name}.svg", content=figure(name)))
    files.append(File.generated(config, "tour.md", content=tour()))
    files.append(File.generated(config, "corpora.md", abs_src_path=str(ROOT / "data" / "README.md")))
    for path in sorted({*RESULTS.rglob("*.md"), *RESULTS.glob("*/compare.*")}):
        target = f"results/{path.relative_to(RESULTS).as_posix()}"
        files.append(File.generated(config, target, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the tables. Point links at the pages of the site, and leave only the text of links to other
    files of the repository."""
    markdown = MARKED.sub(lambda found: (TABLES | SITE_TABLES)[found[1]](), markdown)
    pages = {Path(file.abs_src_path): file.src_uri for file in files if file.abs_src_path}
    pages[ROOT / "docs" / "tour.ipynb"] = "tour.md"
    folder = Path(page.file.abs_src_path or ROOT / "docs" / page.file.src_uri).parent

    def link(found: re.Match[str]) -> str:
        path = (folder / found["target"]).resolve()
        if path in pages:
            target = os.path.relpath(pages[path], Path(page.file.src_uri).parent)
            return f"[{found['text']}]({target}{found['anchor'] or ''})"
        return found["text"] if path.exists() else found[0]

    return LINK.sub(link, markdown)


def tour() -> str:
    """The notebook as a page, with its stored outputs."""
    parts = []
    for cell in json.loads((ROOT / "docs" / "tour.ipynb").read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            data = {kind: "".join(lines) for kind, lines in output.get("data", {}).items()}
            if "image/png" in data:
                parts.append(f'<img alt="output" src="data:image/png;base64,{data["image/png"].strip()}">')
            elif "text/html" in data:
                html = "\n".join(line for line in data["text/html"].splitlines() if line.strip())
                parts.append(f'<div style="overflow-x: auto">{html}</div>')
            else:
                parts.append(f"```text\n{data.get('text/plain') or ''.join(output['text'])}\n```")
    return "\n\n".join(parts)


def by_family() -> dict[str, list[str]]:
    """Names of encodings by family."""
    found: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for name in registry.encodings.names():
        found.setdefault(cls_of(name).family, []).append(name)
    return found


def cls_of(name: str) -> type[Encoding]:
    return registry.encodings.load(name)


@cache
def spec_of(name: str) -> Any:
    """The encoding with its defaults; a wrapper around the first plain encoding that it takes."""
    return representative(name, Size(WIDTH, HEADS, LAYERS, LENGTH, cls_of(name).decoder))


def flow(value: Any) -> str:
    """A value as YAML in one line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, dict):
        items = ", ".join(f"{key}: {flow(part)}" for key, part in value.items())
        return value["name"] if [*value] == ["name"] else f"{{{items}}}"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def figure(name: str) -> bytes:
    """The figure that `zoo draw` makes of an encoding, as SVG."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        file = Path(folder, "figure.svg")
        if main(["draw", flow(spec_of(name)), "--out", str(file)]):
            raise ValueError(f"zoo draw {name} failed")
        return file.read_bytes()


def encoding_page(name: str) -> str:
    cls = cls_of(name)
    summary, _, rest = inspect.getdoc(cls).partition("\n\n")
    rest = OPTIONS.sub("", rest)
    spec = flow(spec_of(name))
    base = "wikitext2" if cls.decoder else "maxindex"
    train = f"zoo fit recipes/base/{base}.yaml --set 'model.encoding={spec}' --set name={name}"
    if cls.replaces:
        train = f"zoo evaluate runs/{cls.replaces[0]}_wikitext2 --set model.encoding={name}"
    sections = [
        f"# {name}\n\n{escaped(summary)}",
        formula(cls.formula),
        table(("", ""), facts(cls, name)),
        "\n\n".join(escaped(paragraph) for paragraph in rest.split("\n\n")),
        f"![The terms of {name}, and the attention that they give](../encodings/{name}.svg)",
        f"## Options\n\n{options(registry.encodings.describe(name)) or 'None.'}",
        f"## Use\n\n```sh\n{train}\nzoo check {name}\nzoo draw '{spec}' --length 1024\n```",
        results(name),
        costs(name),
        proofs(name),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def facts(cls: type[Encoding], name: str) -> list[tuple[str, str]]:
    kinds = [kind for kind in ("decoder", "encoder") if getattr(cls, kind)]
    return [
        ("family", cls.family),
        (
            "models",
            ", ".join(kinds) if not cls.replaces else f"evaluation of models trained with {cls.replaces[0]}",
        ),
        ("shift-invariant", "yes" if cls.relative else "no"),
        ("key/value cache", decoding(cls, name)),
        ("beyond the trained length", BEYOND.get(cls.extrapolates, cls.extrapolates)),
        ("paper", escaped(cls.paper)),
        ("source", code(cls.__module__.replace(".", "/") + ".py")),
    ]


def decoding(cls: type[Encoding], name: str) -> str:
    """The longest sequence that is decoded with a cache."""
    if not cls.decoder:
        return "encoders have none"
    resolved, _ = check_encoding(spec_of(name), ())
    longest = EncodingStack(resolved, Size(WIDTH, HEADS, LAYERS, LENGTH, True), 0).max_cached_length
    answer = {None: "yes", 0: "not with the default options"}.get(longest, f"up to {longest} tokens")
    return f"[{answer}](../encodings.md#keyvalue-cache)"


def results(name: str) -> str:
    """The row of an encoding in the leaderboard, and its values by study and multiple of the trained
    length."""
    pages = ROOT / "docs" / "results"
    shown = {"heads": "nape"}.get(name, name)
    with (pages / "values.csv").open(newline="") as file:
        every = [row for row in csv.DictReader(file) if row["encoding"] == shown]

    def page(study: str) -> str:
        return f"{study}.md" if (pages / f"{study}.md").exists() else "questions.md"

    rows = [row for row in every if page(row["study"]) != "questions.md"] or every
    cells: dict[str, dict[float, str]] = {}
    first = {row["study"]: (row["protocol"], row["measure"]) for row in reversed(rows)}
    for row in (row for row in rows if first[row["study"]] == (row["protocol"], row["measure"])):
        interval = f" ({float(row['low']):.3f}–{float(row['high']):.3f})" if row["low"] else ""
        cells.setdefault(row["study"], {})[float(row["times"])] = f"{float(row['value']):.3f}{interval}"
    if not cells:
        return ""
    times = sorted({one for found in cells.values() for one in found})
    body = [
        [f"[{study}](../results/{page(study)}), {first[study][1].replace('_', ' ')}",
         *(found.get(one, "–") for one in times)]
        for study, found in cells.items()
    ]  # fmt: skip
    text = (pages / "leaderboard.md").read_text()
    heads, line, *every = text[text.index("\n| ") + 1 :].partition("\n\n")[0].splitlines()
    own = [row for row in every if row.startswith(f"| {shown} ")]
    places = "\n".join([heads, line, *own]) if own else ""
    return "\n\n".join([
        "## Results",
        *([f"In the [leaderboard](../results/leaderboard.md):\n\n{places}"] if places else []),
        f"Means over seeds with 95 % intervals, by multiple of the trained length:\n\n"
        f"{table(('', *(f'{one:g}x' for one in times)), body)}",
    ])  # fmt: skip


def costs(name: str) -> str:
    """The cost of a training step."""
    stored = json.loads((RESULTS / "costs.json").read_text())
    s = stored["setting"]
    lines = [
        f"A training step on a CPU takes {row['time']:.2f} times as long as without positions "
        f"({row['time_from']:.2f} to {row['time_to']:.2f} over {s['rounds']} rounds) and {row['memory']:.2f} "
        f"times the peak memory, with {row['parameters']:,} parameters of the encoding (width {s['width']}, "
        f"{s['layers']} layers, length {s['length']}, {s['precision']}, {s['machine']}). "
        "See [all costs](../results/costs.md)."
        for row in stored["rows"]
        if row["name"] == name
    ]
    return "## Costs\n\n" + lines[0] if lines else ""


def proofs(name: str) -> str:
    """The references that an encoding was compared with."""
    lines = (RESULTS / "proofs.md").read_text().splitlines()
    rows = [line for line in lines[2:] if has(line.strip("| ").split(" |")[0], name)]
    return "\n".join(["## Checked against", "", *lines[:2], *rows]) if rows else ""


def studies() -> list[str]:
    return sorted(file.parent.name for file in RESULTS.glob("*/compare.md"))


def has(label: str, name: str) -> bool:
    """Whether a label such as `rope scaling=yarn` or `alibi+rope` names an encoding."""
    return any(re.split(r"[ (]", part)[0] == name for part in label.split("+"))


def options(one: Description) -> str:
    """Options of a class with type, default and meaning."""
    rows = []
    for option in one.options:
        default = "required" if option.default is registry.REQUIRED else code(flow(option.default))
        kind, meaning = type_text(option.annotation), one.help.get(option.name, "")
        rows.append((code(option.name), code(kind), default, escaped(meaning)))
    return table(("option", "type", "default", "meaning"), rows) if rows else ""


def encodings_table(target: str = "../{source}") -> str:
    """Encodings by family, linked to their files or, on the site, to their pages."""
    parts = []
    for family, names in by_family().items():
        links = {
            name: target.format(name=name, source=cls_of(name).__module__.replace(".", "/") + ".py")
            for name in names
        }
        rows = [
            (f"[{code(name)}]({link})", escaped(registry.encodings.describe(name).summary))
            for name, link in links.items()
        ]
        parts.append(f"## {family.capitalize()}\n\n{FAMILIES.get(family, '')}\n\n{table(('', ''), rows)}")
    return "\n".join(parts)


def kind_table(kind: registry.Registry) -> str:
    """The classes of a kind with their options."""
    parts = []
    for name in kind.names():
        one = kind.describe(name)
        parts.append(f"### {code(name)}\n\n{escaped(one.summary)}\n\n{options(one)}")
    return "\n\n".join(parts)


def recipe_table() -> str:
    """Every key of a recipe, from the JSON Schema."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(["show", "--schema"])
    schema = json.loads(printed.getvalue())
    parts = []
    for title, section in {"recipe": schema, **schema["$defs"]}.items():
        rows = [
            (code(key), code(schema_type(value)), code(flow(value["default"])) if "default" in value else "",
             escaped(value.get("description", "")))
            for key, value in section.get("properties", {}).items()
        ]  # fmt: skip
        if rows:
            parts.append(f"### {title}\n\n{table(('key', 'type', 'default', 'meaning'), rows)}")
    return "\n\n".join(parts)


def schema_type(value: dict[str, Any]) -> str:
    if several := value.get("anyOf") or value.get("oneOf"):
        return " or ".join(dict.fromkeys(map(schema_type, several)))
    if "enum" in value:
        return ", ".join(map(str, value["enum"]))
    return str(value.get("const", value.get("type", "mapping")))


def public() -> dict[str, Any]:
    """The names of the package."""
    return {name: getattr(zoo, name) for name in sorted({*zoo.__all__, "open"} - {"encodings", "register"})}


def api_table() -> str:
    """The names of the package, each with the first paragraph of its docstring."""
    rows = [
        (code(f"zoo.{name}"), escaped(inspect.getdoc(one).partition("\n\n")[0]))
        for name, one in public().items()
    ]
    return table(("name", ""), rows)


def api_reference() -> str:
    """The names of the package, for mkdocstrings."""
    return "\n\n".join(
        f"## zoo.{name}\n\n::: {one.__module__}.{one.__qualname__}" for name, one in public().items()
    )


def stored(markdown: str) -> str:
    """A page's text with its tables as the code has them now."""
    return MARKED.sub(
        lambda found: f"<!-- table: {found[1]} -->\n\n{TABLES[found[1]]().strip()}\n\n<!-- end -->", markdown
    )


def formula(latex: str) -> str:
    """A formula as MathML, which browsers show without a script."""
    parts = [convert(part, display="block") for part in latex.split(r"\qquad")] if latex else []
    return f'<div class="formula">{"".join(parts)}</div>' if parts else ""


def escaped(text: str) -> str:
    """Text in one line as Markdown; backticks stay code, papers become links."""
    parts = " ".join(text.split()).split("`")
    parts = [code(part) if index % 2 else entities(part) for index, part in enumerate(parts)]
    text = re.sub(r"https://[^\s)]+", r"<\g<0>>", "".join(parts))
    return PAPER.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def code(text: str) -> str:
    return f"<code>{entities(text)}</code>"


def entities(text: str) -> str:
    return re.sub(r"[\\*_\[\]<>&|#`{}]", lambda found: f"&#{ord(found[0])};", text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)) + "\n"


TABLES = {
    "encodings": encodings_table,
    "recipe": recipe_table,
    "api": api_table,
    "datasets": lambda: kind_table(registry.datasets),
    "tasks": lambda: kind_table(registry.tasks),
    "protocols": lambda: kind_table(registry.protocols),
}
SITE_TABLES = {"encodings": lambda: encodings_table("encodings/{name}.md"), "api": api_reference}
"""Tables that have another form on the site."""


if __name__ == "__main__":
    for page in (ROOT / "docs").glob("*.md"):
        page.write_text(stored(page.read_text()))
