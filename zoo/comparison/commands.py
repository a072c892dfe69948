"""Commands that an output names; each can be pasted into a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from zoo import registry
from zoo.comparison.run_info import RunInfo
from zoo.evaluation.measurement import Measurement
from zoo.recipe.diff import ENCODING
from zoo.recipe.sections import MAX_TOKENS, EvaluateConfig


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


def settings(run: RunInfo, like: RunInfo, one: Measurement) -> tuple[str, ...]:
    """The keys of `evaluate`, as `key=value`, by which a run is measured as `one`, a measurement of the run
    `like`: those that its own recipe has otherwise."""
    protocol = registry.protocols.all().get(one.protocol)
    wanted = {key: value for key, value in one.parameters.items() if key in EvaluateConfig.model_fields}
    defaults = {"split": protocol and protocol.split, "max_tokens": MAX_TOKENS}
    wanted.setdefault("split", defaults["split"])
    if protocol is not None and protocol.unit == "examples":
        wanted["samples"] = one.targets.count
    else:
        wanted["max_tokens"] = one.targets.max_tokens or setting(like, "max_tokens") or MAX_TOKENS
    if "longest" in one.parameters:  # the documents that hold the longest of evaluate.lengths
        wanted["lengths"] = setting(like, "lengths")
    if run.card.get("imported"):
        wanted["start_token"] = "auto" if one.targets.start_token else "none"
    changed = [
        f"evaluate.{key}={_word(value)}"
        for key, value in wanted.items()
        if (setting(run, key) or defaults.get(key)) != value
    ]
    packing = one.parameters.get("packing", "packed")
    if packing != run.recipe["data"].get("packing", "packed"):
        changed.append(f"data.packing={packing}")
    if corpus := one.parameters.get("data"):
        changed.append(f"data={corpus}")
    return tuple(changed)


def setting(run: RunInfo, key: str) -> Any:
    """The value of `evaluate.KEY` in a run's recipe."""
    own, default = run.recipe.get("evaluate"), EvaluateConfig.model_fields[key].default
    return own.get(key, default) if isinstance(own, dict) else default


def changes(changed: dict[str, Any]) -> tuple[str, ...]:
    """The changes of an encoding after training, as `key=value`."""
    return tuple(f"{key}={_word(value)}" for key, value in changed.items() if key.startswith(ENCODING))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
