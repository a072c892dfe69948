"""The pages of tasks, protocols and datasets, with examples that the code has drawn."""

from __future__ import annotations

from pathlib import Path

from zoo import registry
from zoo.gallery.examples import example_of
from zoo.gallery.markdown import (
    code,
    escaped,
    explanation,
    facts_table,
    in_cell,
    linked,
    options_table,
    table,
)
from zoo.gallery.results import Study, rows_of
from zoo.registry import Description

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
NEEDS = {"text": "language models, of text", "examples": "tasks whose answers are right or wrong"}


def task_page(one: Description) -> str:
    """What a task is, what it takes, and how it is judged."""
    data = [other for other in registry.datasets.all().values() if other.gives == one.takes]
    rows = [(f"[{code(other.name)}](../datasets/{other.name}.md)", in_cell(other.summary)) for other in data]
    judged = ", ".join(f"[{code(name)}](../protocols/{name}.md)" for name in one.protocols)
    facts = [
        ("models", ", ".join(one.kinds)),
        ("examples are", escaped(str(one.takes))),
        ("measured by", judged),
        ("from", escaped("the zoo" if one.builtin else str(one.package or one.file.name))),
    ]
    return _joined(
        f"# {escaped(one.name)}\n\n{escaped(one.summary)}\n{{: .lead }}",
        facts_table(facts),
        explanation(one),
        _options(one, "task"),
        f"## Data\n\n{table(('dataset', 'what it is'), rows)}" if rows else "",
        f"## An example\n\nOf {code(data[0].name)}:\n\n{example_of(data[0].name)}"
        if data and example_of(data[0].name)
        else "",
        _fit(one),
    )


def _fit(one: Description) -> str:
    recipe = {
        "language_modelling": "alibi_wikitext2.yaml",
        "masked_language_modelling": "alibi_wikitext2_encoder.yaml",
        "answering": "base/flip_flop.yaml",
        "max_index": "alibi_maxindex.yaml",
    }.get(one.name)
    return f"## Train\n\n```sh\nzoo fit recipes/{recipe}\n```" if recipe else ""


def protocol_page(one: Description) -> str:
    """What a protocol measures, how it is asked for, and numbers that it gave."""
    facts = [
        ("measures", NEEDS.get(str(one.needs), escaped(str(one.needs)))),
        ("over", "the length of a sequence" if one.axis == "length" else f"the {one.axis} that a token had"),
        ("better", "higher" if one.higher_is_better else "lower"),
        ("intervals over", escaped(str(one.unit))),
    ]
    return _joined(
        f"# {escaped(one.name)}\n\n{escaped(one.summary)}\n{{: .lead }}",
        facts_table(facts),
        f"*{escaped(str(one.explanation))}*" if one.explanation else "",
        explanation(one),
        _options(one, "evaluate"),
        f"## Measure it\n\n```sh\nzoo evaluate {_run_for(one)} --protocol {one.name}\n```",
        _measured(one),
    )


def _run_for(one: Description) -> str:
    return "runs/alibi_flip_flop" if one.needs == "examples" else "runs/rope_wikitext2 runs/alibi_wikitext2"


def _measured(one: Description) -> str:
    """What it gave for one encoding, where a result is stored."""
    for folder in ("wikitext2_protocols", "flip_flop"):
        rows = [
            row
            for row in rows_of(Study(folder, "", "", ""))
            if row["protocol"] == one.name and row["encoding"] in ("alibi", "rope") and row["mean"]
        ]
        if not rows:
            continue
        parameters = rows[0]["parameters"]
        rows = [
            row for row in rows if row["parameters"] == parameters and row["measure"] == rows[0]["measure"]
        ]
        lengths = sorted({int(row["length"]) for row in rows})
        value = {(row["encoding"], int(row["length"])): row for row in rows}
        body = []
        for name in ("alibi", "rope"):
            cells = []
            for length in lengths:
                row = value.get((name, length))
                spread = f" ({float(row['low']):.3f}–{float(row['high']):.3f})" if row and row["low"] else ""
                cells.append(f"{float(row['mean']):.3f}{spread}" if row else "–")
            body.append((f"[{code(name)}](../encodings/{name}.md)", *cells))
        trained = rows[0]["train_length"]
        header = [
            "encoding",
            *(f"{length:,}{' (trained)' if str(length) == trained else ''}" for length in lengths),
        ]
        measure = rows[0]["measure"].replace("_", " ")
        asked = f" with {code(parameters)}" if parameters not in ("", "{}") else ""
        source = f"scripts/results/{folder}/compare.csv"
        return (
            f"## An example\n\n{measure.capitalize()}{asked} by {one.axis} in tokens, trained at {trained}; "
            f"{escaped(rows[0]['interval'])}. From {code(source)}.\n\n"
            f"{table(header, body, numbers=len(lengths))}"
        )
    return ""


def dataset_page(one: Description) -> str:
    """What a dataset is, with an example that its code has drawn."""
    tasks = [task.name for task in registry.tasks.all().values() if task.takes == one.gives]
    facts = [
        ("examples are", escaped(str(one.gives))),
        ("from", linked(in_cell(str(one.source)))),
        ("tasks", ", ".join(f"[{code(name)}](../tasks/{name}.md)" for name in tasks)),
    ]
    shown = example_of(one.name)
    recipe = RECIPES / "base" / f"{one.name}.yaml"
    train = f"## Train on it\n\n```sh\nzoo fit recipes/base/{one.name}.yaml --set model.encoding=alibi\n```"
    return _joined(
        f"# {escaped(one.name)}\n\n{escaped(one.summary)}\n{{: .lead }}",
        facts_table(facts),
        f"## An example\n\n{shown}" if shown else "",
        explanation(one),
        _options(one, "data"),
        train if recipe.is_file() else "",
    )


def list_page(title: str, lead: str, kind: registry.Registry, folder: str) -> str:
    """All of a kind in a table."""
    rows = [(f"[{code(one.name)}]({one.name}.md)", in_cell(one.summary)) for one in kind.all().values()]
    return f"# {title}\n\n{lead}\n\n{table(('name', 'what it is'), sorted(rows))}"


def _options(one: Description, section: str) -> str:
    shown = options_table(one)
    return f"## Options\n\nKeys of `{section}` in a recipe.\n\n{shown}" if shown else ""


def _joined(*sections: str) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"
