"""The first page: all encodings, with small pictures by family, and as a table that can be sorted."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence

from zoo.encodings.parameters import HEADS, LAYERS, LENGTH, WIDTH
from zoo.gallery import results
from zoo.gallery.encoding_page import acts_on, parameters_text
from zoo.gallery.markdown import escaped, in_cell, table
from zoo.listing import beyond, kinds_of
from zoo.registry import Description

FAMILIES = {
    "absolute": "A vector for each position is added to the token vectors, or nothing is.",
    "position ids": "They change which positions another encoding sees.",
    "rotary": "Queries and keys are turned by their positions.",
    "bias": "A number for each pair of positions is added to the scores.",
    "content": "What is added to the scores depends on the query or the key, and on the distance.",
    "contextual": "Tokens themselves decide how far apart they are.",
    "schedule": "They decide which encoding a layer, or a part of the training, has.",
}


def family_of(one: Description) -> str:
    return str(one.family) or "without a family"


def by_family(encodings: Sequence[Description]) -> dict[str, list[Description]]:
    """Encodings by family, families in the order in which they are told."""
    found: dict[str, list[Description]] = {}
    for one in sorted(encodings, key=lambda one: (_rank(family_of(one)), family_of(one), one.name)):
        found.setdefault(family_of(one), []).append(one)
    return found


def _rank(family: str) -> int:
    known = [*FAMILIES]
    return known.index(family) if family in known else len(known)


def page(
    encodings: Sequence[Description],
    thumbnails: Mapping[str, str],
    link: Callable[[str], str],
    guide: bool,
) -> str:
    """The page in Markdown.

    Args:
        thumbnails: of each encoding whose page is built the path of a small picture.
        link: gives a name as Markdown, with a link to its page where that is built.
        guide: whether the hand-written pages are built too.
    """
    parts = [
        "---\nhide: [toc]\n---\n\n# The gallery of positional encodings",
        "Every encoding of the zoo, drawn and measured by the code that trains it."
        + (
            " New here? [Choose one](choose.md), take the [tour](tour.md), or [add your own](add.md)."
            if guide
            else ""
        ),
    ]
    for family, members in by_family(encodings).items():
        built = [one for one in members if one.name in thumbnails]
        if not built:
            continue
        cards = "\n".join(_card(one, thumbnails[one.name]) for one in built)
        parts.append(f"## {escaped(family.capitalize())}\n\n{FAMILIES.get(family, '')}")
        parts.append(f'<div class="cards" markdown="0">\n{cards}\n</div>')
    parts.append(f"## All of them\n\n{_table(encodings, link)}")
    parts.append(
        f"Click a heading to sort. Parameters: learned, at width {WIDTH}, {LAYERS} layers, {HEADS} heads, "
        f"length {LENGTH}. Beyond the trained length it is meant to work (yes), is defined and no more (no), "
        "or does what an option says (by policy)."
        + (
            f" Step and memory: of a training step, relative to `none`; {results.setting_text()}."
            if results.costs()
            else ""
        )
    )
    return "\n\n".join(parts) + "\n"


def _card(one: Description, picture: str) -> str:
    # One line of HTML: the whole card is the link, and its picture adds nothing that its text does not say.
    return (
        f'<a class="card" href="encodings/{one.name}.html"><img src="{picture}" alt="" '
        f'loading="lazy" width="312" height="208"><strong>{one.name}</strong>'
        f"<span>{html.escape(one.summary.replace('`', ''))}</span></a>"
    )


def _table(encodings: Sequence[Description], link: Callable[[str], str]) -> str:
    costs = results.costs()
    rows = []
    for one in sorted(encodings, key=lambda one: one.name):
        cost = costs.get(one.name)
        rows.append((
            link(one.name),
            in_cell(family_of(one)),
            in_cell("; ".join(acts_on(one))),
            "both" if len(kinds_of(one)) == 2 else "".join(kinds_of(one)),
            beyond(one),
            parameters_text(one),
            f"{cost['time']:.2f}" if cost else "–",
            f"{cost['memory']:.2f}" if cost else "–",
        ))  # fmt: skip
    header = ("encoding", "family", "acts on", "for", "beyond", "parameters", "step", "memory")
    return f'<div class="sortable" markdown>\n\n{table(header, rows)}\n</div>'
