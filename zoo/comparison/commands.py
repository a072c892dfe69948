"""Commands that an output names; each can be pasted into a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from zoo.comparison.run_info import RunInfo
from zoo.recipe.diff import ENCODING
from zoo.recipe.sections import EvaluateConfig


def command(words: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "zoo", *words])


def options(protocols: Sequence[str] | None, lengths: Iterable[int] | None) -> list[str]:
    """The words that choose protocols and lengths."""
    chosen = ["--protocol", ",".join(protocols)] if protocols else []
    return chosen + (["--lengths", ",".join(map(str, lengths))] if lengths else [])


def evaluate_command(
    runs: Iterable[RunInfo],
    protocols: Sequence[str] | None = None,
    lengths: Iterable[int] | None = None,
    sets: Iterable[str] = (),
) -> str:
    """The command of an evaluation, with the plugins of the runs: they are code, and run where named only.
    `data=CORPUS` in the sets stands for `--data CORPUS`."""
    runs = list(runs)
    plugins = dict.fromkeys(plugin for run in runs for plugin in run.recipe.get("plugins") or ())
    sets = [*sets, *[f"plugins=[{', '.join(plugins)}]"] * bool(plugins)]
    words = ["evaluate", *(run.path for run in runs), *options(protocols, lengths)]
    for one in sets:
        words += ["--data", one.removeprefix("data=")] if one.startswith("data=") else ["--set", one]
    return command(words)


def lengths_to_ask(parameters: dict[str, Any], lengths: Iterable[int]) -> list[int]:
    """The lengths of the `evaluate` command; the bins of a window come from asking for the window."""
    return [parameters["window"]] if "window" in parameters else sorted(lengths)


def settings(parameters: dict[str, Any]) -> tuple[str, ...]:
    """The parameters of a measurement that are keys of `evaluate` and not their default, as `key=value`."""
    fields = EvaluateConfig.model_fields
    return tuple(
        f"evaluate.{key}={_word(value)}"
        for key, value in parameters.items()
        if key in fields and fields[key].default != value
    )


def changes(changed: dict[str, Any]) -> tuple[str, ...]:
    """The changes of an encoding after training, as `key=value`."""
    return tuple(f"{key}={_word(value)}" for key, value in changed.items() if key.startswith(ENCODING))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
