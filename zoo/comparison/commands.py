"""Commands that an output names; each can be pasted into a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from zoo.recipe.diff import ENCODING
from zoo.recipe.sections import EvaluateConfig


def command(words: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "zoo", *words])


def options(protocols: Sequence[str] | None, lengths: Iterable[int] | None) -> list[str]:
    """The words that choose protocols and lengths."""
    chosen = ["--protocol", ",".join(protocols)] if protocols else []
    return chosen + (["--lengths", ",".join(map(str, lengths))] if lengths else [])


def evaluate_command(
    runs: Iterable[str],
    protocols: Sequence[str] | None,
    lengths: Iterable[int] | None,
    sets: Iterable[str],
    more: Sequence[str] = (),
) -> str:
    """The command of an evaluation; `more` are further words."""
    words = ["evaluate", *runs, *options(protocols, lengths)]
    return command([*words, *(word for one in sets for word in ("--set", one)), *more])


def lengths_to_ask(parameters: dict[str, Any], lengths: Iterable[int]) -> list[int]:
    """The lengths of the `evaluate` command; the bins of a window come from asking for the window."""
    return [parameters["window"]] if "window" in parameters else sorted(lengths)


def settings(recipe: dict[str, Any], parameters: dict[str, Any]) -> tuple[str, ...]:
    """The parameters of a protocol for which a run's own recipe has other values, as `key=value`."""
    return tuple(
        f"evaluate.{key}={_word(value)}"
        for key, value in parameters.items()
        if key in EvaluateConfig.model_fields and setting(recipe, key) != value
    )


def setting(recipe: dict[str, Any], key: str) -> Any:
    """The value of `evaluate.KEY` in a run's recipe."""
    own, default = recipe.get("evaluate"), EvaluateConfig.model_fields[key].default
    return own.get(key, default) if isinstance(own, dict) else default


def changes(changed: dict[str, Any]) -> tuple[str, ...]:
    """The changes of an encoding after training, as `key=value`."""
    return tuple(f"{key}={_word(value)}" for key, value in changed.items() if key.startswith(ENCODING))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
