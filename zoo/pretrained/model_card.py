"""README.md of an exported model: facts, training data, results by length, loading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from zoo.runs.code_source import code_sources, packages

PACKAGE = "positional-encoding-zoo"
# The names of datasets on the hub.
HUB_DATASETS = {"wikitext-2": "Salesforce/wikitext", "wikitext-103": "Salesforce/wikitext"}


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        loaded_by: the Python expression that loads it.
        architecture: of `transformers`, as which it was written; None for the zoo's own.
        reason: why it is the zoo's own.
        difference: the largest of its logits to those of the run, where it was read back.
        read_by: the versions of `transformers` that read it.
        tokens: how many other tools read at a time, by its configuration.
        harness: the command that measures it beyond the trained length with lm-evaluation-harness, if any.
    """

    loaded_by: str
    architecture: str | None = None
    reason: str = ""
    difference: float | None = None
    read_by: str = ""
    tokens: int = 0
    harness: str = ""


def model_card(
    recipe: dict[str, Any],
    card: dict[str, Any],
    curves: str | None,
    exported: Exported,
) -> str:
    """The model card, Markdown under the hub's metadata. No licence is given: the run does not know it.

    Args:
        recipe: resolved.
        card: the run's; empty for a checkpoint that has none.
        curves: the tables of its evaluation, Markdown; None where it was not evaluated.
        exported: the result of its export.
    """
    loaded_by, architecture = exported.loaded_by, exported.architecture
    model, data = recipe["model"], recipe["data"]
    encoding = _encoding_name(model["encoding"])
    causal = model["kind"] == "decoder"
    metadata: dict[str, Any] = {
        "library_name": "transformers" if "from_pretrained" in loaded_by else PACKAGE,
        "tags": [PACKAGE, "positional-encoding", encoding],
    }
    if causal or "MaskedLM" in loaded_by:
        metadata["pipeline_tag"] = "text-generation" if causal else "fill-mask"
    # The data in the recipe of an imported model are its evaluation data.
    imported = card.get("imported") or {}
    if data["name"] in HUB_DATASETS and not imported:
        metadata["datasets"] = [HUB_DATASETS[data["name"]]]
    facts = {
        "model": f"{model['kind']}, {model['num_layers']} layers of width {model['d_model']}, "
        f"{model['num_heads']} heads" + (f", written as a {architecture}" if architecture else ""),
        "positional encoding": f"`{_in_one_line(model['encoding'])}`",
        "parameters": _parameters(card.get("parameters")),
        "imported from": f"{imported['from']} ({imported['architecture']})" if imported else "",
        "data": "unknown" if imported else data["name"],
        "trained length": f"{data['sequence_length']:,} tokens",
        "length for other tools": f"{exported.tokens:,} tokens" if exported.tokens else "",
        "read by": exported.read_by,
        "tokens seen": _number(card.get("tokens_seen")),
        "optimizer steps": "unknown" if imported else _number(card.get("steps")),
        "seed": "" if imported else str(recipe["seed"]),
        "changed after training": ", ".join(
            f"`{key}={value}`" for key, value in (card.get("changed_after_training") or {}).items()
        ),
        "corpus, tokenizer (sha256)": ", ".join(
            f"`{card['fingerprint'][key][:12]}`"
            for key in ("corpus", "tokenizer")
            if (card.get("fingerprint") or {}).get(key)
        ),
        "commit of the zoo": f"`{card['git_commit']}`" if card.get("git_commit") else "",
    }
    rows = "\n".join(f"| {key} | {_cell(value)} |" for key, value in facts.items() if value)
    library = "zoo" if loaded_by.startswith("zoo.") else "transformers"
    first = "import zoo" if library == "zoo" else f"from transformers import {loaded_by.split('.')[0]}"
    made = "imported into" if imported else "trained with"
    parts = [
        f"---\n{yaml.safe_dump(metadata, sort_keys=False)}---",
        f"# {recipe['name']}",
        f"A transformer {model['kind']} with the positional encoding {encoding}, {made} the "
        "positional-encoding zoo.",
        f"| | |\n|---|---|\n{rows}",
        f"```python\n{first}\n\nmodel = {loaded_by}\n```",
    ]
    if "trust_remote_code" in loaded_by:
        parts.append(
            "`transformers` has no architecture that holds this model, so `modeling_zoo.py` imports the zoo."
        )
    if "trust_remote_code" in loaded_by or library == "zoo":
        needed = " ".join([PACKAGE, *packages(code_sources(recipe))])
        parts.append(f"Its code has to be installed: `pip install {needed}`.")
    if exported.harness:
        parts.append(
            "To measure it beyond the length for other tools, lm-evaluation-harness needs `max_length`:\n\n"
            f"```sh\n{exported.harness}\n```"
        )
    if curves:
        # One level deeper than in the run's own report, whose title says nothing new here.
        body = re.sub("^# .*\n", "", curves, flags=re.MULTILINE)
        parts.append("## By length\n\n" + re.sub("^##", "###", body.strip(), flags=re.MULTILINE))
    return "\n\n".join(parts) + "\n"


def _encoding_name(encoding: Any) -> str:
    return "+".join(map(_encoding_name, encoding)) if isinstance(encoding, list) else encoding["name"]


def _in_one_line(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()


def _parameters(counts: dict[str, int] | None) -> str:
    return f"{counts['total']:,}, {counts['positional']:,} of them positional" if counts else "unknown"


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
