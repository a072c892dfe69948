"""Markdown for the pages: tables, options, formulas as MathML, papers as links, docstrings as text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from zoo.registry import REQUIRED, Description
from zoo.signatures import annotation_text, value_text

_ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
_GITHUB = re.compile(r"(?<![\w/])github\.com/[\w.-]+/[\w.-]*\w")
_SECTION = re.compile(r"^(Options|Args|Attributes):\n(?:(?: +.*)?(?:\n|$))*", re.MULTILINE)
_SPECIAL = re.compile(r"([\\*_\[\]<>&|#~^$])")


def escaped(text: str) -> str:
    """Plain text as Markdown that reads the same; what stands in backticks stays code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick of its own
        return _SPECIAL.sub(r"\\\1", text.replace("`", "'"))
    return "`".join(part if index % 2 else _SPECIAL.sub(r"\\\1", part) for index, part in enumerate(parts))


def in_cell(text: str) -> str:
    """Plain text for a cell of a table. In code, a bar would end the cell."""
    return escaped(" ".join(text.split())).replace("\\|", "&#124;").replace("|", "&#124;")


def code(text: str) -> str:
    """Inline code, in a cell of a table too."""
    return (
        f"<code>{html.escape(text).replace('|', '&#124;').replace('*', '&#42;').replace('_', '&#95;')}</code>"
    )


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
    return table(("option", "type", "default", "what it does"), rows)


def explanation(one: Description) -> str:
    """What the docstring says after its first paragraph, its list of options apart."""
    _, _, rest = one.docstring.partition("\n\n")
    paragraphs = re.split(r"\n\s*\n", _SECTION.sub("", rest))
    return linked("\n\n".join(escaped(" ".join(part.split())) for part in paragraphs if part.strip()))


def linked(text: str) -> str:
    """Text with papers on arXiv and repositories on GitHub as links."""
    text = _ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)
    return _GITHUB.sub(lambda found: f"[{found[0]}](https://{found[0].replace(chr(92), '')})", text)


def formula(latex: str) -> str:
    """A formula in LaTeX as a block of MathML, which browsers show without a script.

    Raises:
        ValueError: it is no LaTeX.
    """
    from latex2mathml.converter import convert

    try:
        shown = convert(latex, display="block")
    except Exception as error:  # the package has a class for each fault, and IndexError for some
        raise ValueError(f"no formula in LaTeX: {latex!r} ({type(error).__name__}: {error})") from error
    # A reader's program and a search read the LaTeX.
    return f'<div class="formula" title="{html.escape(latex)}">{shown}</div>\n'
