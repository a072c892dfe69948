"""Markdown for the pages: tables, options, formulas as MathML, papers as links, docstrings as text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from zoo.registry import REQUIRED, Description
from zoo.signatures import annotation_text, value_text

_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
_GITHUB = re.compile(r"(?<![\w/])github\.com/[\w.&#;-]+/[\w.&#;-]*\w")
_SECTION = re.compile(r"^(Options|Args|Attributes):\n(?:(?: +.*)?(?:\n|$))*", re.MULTILINE)
_SPECIAL = re.compile(r"[\\*_\[\]<>&|#`]")


def _entities(text: str) -> str:
    # Backslashes would do for some of them, and stand in the page before the others.
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", text)


def escaped(text: str) -> str:
    """Plain text as Markdown that reads the same, in a table too; what stands in backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick of its own
        return _entities(text)
    return "".join(code(part) if index % 2 else _entities(part) for index, part in enumerate(parts))


def in_cell(text: str) -> str:
    """Plain text in one line."""
    return escaped(" ".join(text.split()))


def code(text: str) -> str:
    """Inline code, in a cell of a table too."""
    return f"<code>{_entities(text)}</code>"


def facts_table(facts: Iterable[tuple[str, str]]) -> str:
    """What is known of a thing, by key; those without a value are left out. Values are Markdown."""
    rows = [(f"**{key}**", value) for key, value in facts if value]
    return f'<div class="facts" markdown>\n\n{table(("", ""), rows)}\n</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table, whose last `numbers` columns are aligned to the right. Cells are Markdown without bars."""
    ruler = ["---"] * (len(header) - numbers) + ["--:"] * numbers
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ruler, *rows)) + "\n"


def options_table(one: Description) -> str:
    """Options with type, default and help; empty where there are none."""
    if not one.options:
        return ""
    rows = []
    for option in one.options:
        default = "required" if option.default is REQUIRED else code(value_text(option.default))
        told = in_cell(one.help.get(option.name, ""))
        if option.name in one.facts.get("after_training", ()):
            told += " *May be changed after training.*"
        rows.append((code(option.name), code(annotation_text(option.annotation)), default, told))
    shown = table(("option", "type", "default", "what it does"), rows)
    return f'<div class="options" markdown>\n\n{shown}\n</div>'


def explanation(one: Description) -> str:
    """What the docstring says after its first paragraph, its list of options apart."""
    _, _, rest = one.docstring.partition("\n\n")
    paragraphs = re.split(r"\n\s*\n", _SECTION.sub("", rest))
    return linked("\n\n".join(escaped(" ".join(part.split())) for part in paragraphs if part.strip()))


def linked(text: str) -> str:
    """Text with papers on arXiv and repositories on GitHub as links."""
    text = _ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)
    return _GITHUB.sub(lambda found: f"[{found[0]}](https://{html.unescape(found[0])})", text)


def formula(latex: str) -> str:
    """A formula in LaTeX as a block of MathML, which browsers show without a script.

    Raises:
        ValueError: it is no LaTeX.
    """
    from latex2mathml.converter import convert

    try:
        # Its parts stand beside or, on a phone, below each other.
        parts = [convert(part, display="block") for part in latex.split(r"\qquad")]
    except Exception as error:  # the package has a class for each fault, and IndexError for some
        raise ValueError(f"no formula in LaTeX: {latex!r} ({type(error).__name__}: {error})") from error
    return f'<div class="formula" title="{html.escape(latex)}">{"".join(parts)}</div>\n'
