"""`zoo check` of what is not an encoding: a dataset, a protocol, or another kind, which is only imported."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.console import table
from zoo.errors import InputError, Problem, RunError
from zoo.recipe.yaml_file import read_value


def check_others(descriptions: Sequence[registry.Description], sets: Sequence[str]) -> None:
    """Try the laws of each kind, and print the results.

    Args:
        sets: `option=value` texts for all of them.

    Raises:
        InputError: wrong options, or code that cannot be imported.
        RunError: a law is broken.
    """
    options = _options(sets)
    ends = []
    for one in descriptions:
        registry.KINDS[one.kind].load(one.name)
        print(f"{one.name} ({one.kind}): {one.summary}")
        results = list(_laws(one, options))
        if results:
            rows = [(law, "NOT HELD" if fault else "held", fault or "") for law, fault in results]
            print(table(("law", "", "what is wrong"), rows))
        broken = [law for law, fault in results if fault]
        if broken:
            ends.append(f"{one.name} breaks {len(broken)} of {len(results)} laws: {'; '.join(broken)}")
        else:
            print(
                f"{one.name} keeps all {len(results)} laws" if results else "imported; no laws for this kind"
            )
        print()
    if ends:
        raise RunError("\n".join(ends))


def _laws(one: registry.Description, options: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    with tempfile.TemporaryDirectory() as folder:
        if one.kind == "dataset":
            from zoo.contract.dataset_laws import dataset_laws

            yield from dataset_laws(one.name, options, Path(folder))
        elif one.kind == "protocol":
            from zoo.contract.protocol_laws import protocol_laws

            yield from protocol_laws(one.name, options, Path(folder))


def _options(sets: Sequence[str]) -> dict[str, Any]:
    options = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(Problem("not of the form option=value", where=f"--set {text}"))
        options[key] = read_value(value, f"--set {text}")
    return options
