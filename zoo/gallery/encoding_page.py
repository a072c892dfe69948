"""The page of one encoding, made from its class and from what was measured of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from zoo import registry
from zoo.encodings.parameters import (
    HEADS,
    LAYERS,
    WIDTH,
    learned_parameters,
    representative,
)
from zoo.encodings.parameters import LENGTH as COMPARED
from zoo.errors import InputError
from zoo.figures.specs import LENGTH, TRAINED
from zoo.gallery import results
from zoo.gallery.markdown import (
    code,
    escaped,
    explanation,
    facts_table,
    formula,
    in_cell,
    linked,
    options_table,
    table,
)
from zoo.listing import beyond, kinds_of, origin
from zoo.recipe.encoding import encoding_label
from zoo.registry import Description

ACTS_ON = {
    "positions": "position ids",
    "embed": "token vectors",
    "rotate": "queries and keys",
    "bias": "scores, by position",
    "bias_table": "scores, by position",
    "score": "scores, by content",
    "logits": "scores as a whole",
    "value": "values",
}
"""What each hook acts on."""
BEYOND = {
    "yes": "It is meant to work past the trained length.",
    "no": "It is defined past the trained length, and no more is claimed.",
    "by policy": "Past the trained length an option says what it does.",
    "as wrapped": "Past the trained length it does what the encoding does that it wraps.",
}


def spec_of(one: Description) -> dict[str, Any]:
    """The encoding with its defaults, one that needs another around a plain one, as a recipe has it.

    Raises:
        InputError: it cannot be imported or built.
    """
    from zoo.encodings.base import Size  # imports torch

    return representative(one.name, Size(WIDTH, HEADS, LAYERS, COMPARED, one.decoder))


def parameters_text(one: Description) -> str:
    """How many parameters it learns; a dash where they cannot be counted."""
    try:
        return str(learned_parameters(one.name))
    except InputError:
        return "–"


def acts_on(one: Description) -> list[str]:
    """What it acts on: by the hooks that its class overrides, in the order of a forward pass."""
    from zoo.encodings.base import Encoding
    from zoo.encodings.wrapper import Wrapper

    cls = registry.encodings.load(one.name)
    base = Wrapper if issubclass(cls, Wrapper) else Encoding
    found = [place for hook, place in ACTS_ON.items() if getattr(cls, hook) is not getattr(base, hook)]
    if found:
        return list(dict.fromkeys(found))
    holds = any(registry.holds_wrapped(option.annotation) for option in one.options)
    return ["as wrapped"] if holds else ["nothing"]


def page(one: Description, picture: str, family: Iterable[Description], link: Callable[[str], str]) -> str:
    """The page in Markdown.

    Args:
        picture: Markdown of its pictures.
        family: the registered encodings of its family.
        link: gives a name as Markdown, with a link to its page where that is built.

    Raises:
        InputError: the class cannot be imported or built, or its formula is no LaTeX.
    """
    try:
        shown = formula(one.formula) if one.formula else ""
    except ValueError as error:
        raise InputError(f"{one.where}: {error}") from error
    spec = spec_of(one)
    sections = [
        f"# {escaped(one.name)}\n\n{escaped(one.summary)}\n{{: .lead }}",
        shown,
        _facts(one),
        explanation(one),
        _pictures(one, spec, picture),
        _options(one),
        _lengths(one),
        _costs(one),
        _proofs(one),
        _usage(one, spec),
        _see_also(one, family, link),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _facts(one: Description) -> str:
    facts = [
        ("family", escaped(one.family)),
        ("acts on", escaped("; ".join(acts_on(one)))),
        ("for", ", ".join(kinds_of(one))),
        ("for evaluation of", ", ".join(map(code, one.replaces))),
        ("depends on", "distances alone (moving all positions changes nothing)" if one.relative else ""),
        ("layers", "each has its own" if one.per_layer else "all share one"),
        (
            "learned parameters",
            f"{parameters_text(one)} (width {WIDTH}, {LAYERS} layers, {HEADS} heads, length {LENGTH})",
        ),
        ("past the trained length", BEYOND[beyond(one)]),
        ("paper", linked(in_cell(one.paper))),
        ("from", escaped("the zoo" if one.builtin else origin(one))),
    ]
    return facts_table(facts)


def _pictures(one: Description, spec: dict[str, Any], picture: str) -> str:
    drawn = f"'{_flow(spec)}'" if len(spec) > 1 else one.name
    command = code(f"zoo draw {drawn if one.builtin or one.package else one.file.name} --length 1024")
    told = f"Of {code(encoding_label(spec))}, built for {TRAINED} tokens and drawn to {LENGTH}"
    return f"## Pictures\n\n{told}; {command} draws farther.\n\n{picture}"


def _options(one: Description) -> str:
    shown = options_table(one)
    return f"## Options\n\n{shown}" if shown else "## Options\n\nNone."


def _lengths(one: Description) -> str:
    """What was measured past the trained length."""
    parts = []
    for study in results.studies_with(one.name):

        def shown(label: str) -> bool:
            return results.label_has(label, one.name)

        parts.append(
            f"### {escaped(study.title)}\n\n{results.curve_table(study, shown)}\n"
            f"{escaped(study.setting)}; 95 % intervals. Recipe: {code(study.recipe)}.\n\n"
            f"![{study.title}: all encodings that were measured, by length in tokens]"
            f"(../results/{study.folder}.png)"
        )
    if not parts:
        return ""
    return "## Past the trained length\n\n" + "\n\n".join(parts)


def _costs(one: Description) -> str:
    cost, long = results.costs().get(one.name), results.long_passes().get(one.name)
    lines = []
    if cost:
        lines.append(
            f"A training step takes **{cost['time']:.2f}** times the time of one without positions (from "
            f"{cost['time_from']:.2f} to {cost['time_to']:.2f} over the rounds) and **{cost['memory']:.2f}** "
            f"times its peak memory, as {code(cost['label'])}: {results.setting_text()}."
        )
    if long and long.get("seconds"):
        lines.append(
            f"A forward pass over {long['length']:,} tokens (1 layer of width 128, 4 heads) goes at "
            f"{long['length'] / long['seconds']:,.0f} tokens per second in {long['memory_mb']:.0f} MiB."
        )
    elif long:
        lines.append(f"Not at {long['length']:,} tokens: {escaped(long.get('note', ''))}.")
    return "## Costs\n\n" + "\n\n".join(lines) if lines else ""


def _proofs(one: Description) -> str:
    rows = [
        (in_cell(label), in_cell(against), in_cell(difference))
        for label, against, difference in results.proofs()
        if results.label_has(label, one.name)
    ]
    if not rows:
        return ""
    shown = table(("encoding", "against", "largest difference"), rows, numbers=1)
    told = "The largest difference of any output, in float32; `pytest tests/encodings --proofs` measures it."
    return f"## Proven against\n\n{told}\n\n{shown}"


def _usage(one: Description, spec: dict[str, Any]) -> str:
    """The commands that train it."""
    plugin = "" if one.builtin or one.package else f" --set plugins=[{one.file.name}]"
    if one.replaces:
        return (
            "## Use it\n\nIt is for models that were trained with another encoding, and trains none.\n\n"
            f"```sh\nzoo evaluate runs/{one.replaces[0]}_wikitext2{plugin} --set "
            f"model.encoding={one.name}\n```"
        )
    given = _flow(spec)
    quoted = f"'model.encoding={given}'" if len(spec) > 1 else f"model.encoding={given}"
    base = "wikitext2.yaml" if one.decoder else "maxindex.yaml"
    name = encoding_label(spec).replace("(", "_").replace(")", "")
    return (
        f"## Train it\n\n```sh\nzoo fit recipes/base/{base}{plugin} --set {quoted} --set name={name}\n"
        f"zoo check {one.name if not plugin else one.file.name}\n```\n\nOr in a recipe of your own:\n\n"
        f"```yaml\nbase: base/{base}\nmodel: {{encoding: {given}}}\n```"
    )


def _flow(value: Any) -> str:
    """An encoding as a recipe has it, in one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if not isinstance(value, dict):
        return str(value)
    inside = ", ".join(f"{key}: {_flow(part)}" for key, part in value.items())
    return value["name"] if len(value) == 1 else f"{{{inside}}}"


def _see_also(one: Description, family: Iterable[Description], link: Callable[[str], str]) -> str:
    others = [other for other in family if other.name != one.name]
    if not others:
        return ""
    listed = "\n".join(f"- {link(other.name)}: {escaped(other.summary)}" for other in others)
    return f"## See also\n\nThe others of the family *{escaped(one.family)}*:\n\n{listed}"
