"""The commands that a report names: each can be pasted into a shell as it is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from zoo.recipe.diff import ENCODING
from zoo.recipe.sections import EvaluateConfig


def options(protocols: Sequence[str] | None, lengths: Iterable[int] | None) -> list[str]:
    """The words that choose protocols and lengths; none where nothing is chosen."""
    chosen = ["--protocol", ",".join(protocols)] if protocols else []
    return chosen + (["--lengths", ",".join(map(str, lengths))] if lengths else [])


def evaluate_command(
    runs: Iterable[str],
    protocols: Sequence[str] | None,
    lengths: Iterable[int] | None,
    sets: Iterable[str],
    more: Sequence[str] = (),
) -> str:
    """The command that measures runs so; `more` are further words of it."""
    words = ["evaluate", *runs, *options(protocols, lengths)]
    return command([*words, *(word for one in sets for word in ("--set", one)), *more])


def command(words: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "zoo", *words])


def lengths_to_ask(parameters: dict[str, Any], lengths: Iterable[int]) -> list[int]:
    """The lengths to ask for: bins of one window come from asking for the window."""
    return [parameters["window"]] if "window" in parameters else sorted(lengths)


def settings(recipe: dict[str, Any], parameters: dict[str, Any]) -> tuple[str, ...]:
    """What of a protocol's parameters a run's own recipe would choose otherwise."""
    return tuple(
        f"evaluate.{key}={_word(value)}"
        for key, value in parameters.items()
        if key in EvaluateConfig.model_fields and setting(recipe, key) != value
    )


def setting(recipe: dict[str, Any], key: str) -> Any:
    """What a run's own recipe chooses for its evaluation."""
    own, default = recipe.get("evaluate"), EvaluateConfig.model_fields[key].default
    return own.get(key, default) if isinstance(own, dict) else default


def changes(changed: dict[str, Any]) -> tuple[str, ...]:
    """What was changed of an encoding after training, to be changed again."""
    # Other code than at the training has no key.
    return tuple(f"{key}={_word(value)}" for key, value in changed.items() if key.startswith(ENCODING))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
