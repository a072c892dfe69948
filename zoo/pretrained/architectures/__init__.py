"""Published models: import from their format and export to it.

To add one: an `Architecture` in a file here, and its name in `ARCHITECTURES`.
"""

from __future__ import annotations

from typing import Any

from zoo.errors import InputError, Problem
from zoo.pretrained.architecture import Architecture, Model
from zoo.pretrained.architectures.bert import BERT, MODERNBERT
from zoo.pretrained.architectures.gpt import BLOOM, GPT2, GPT_NEOX, MPT
from zoo.pretrained.architectures.hybrid import COHERE2, EXAONE4, OLMO3
from zoo.pretrained.architectures.llama import GEMMA3, LLAMA, MISTRAL, OLMO2, QWEN2, QWEN3, SMOLLM3
from zoo.pretrained.architectures.ministral import MINISTRAL3
from zoo.pretrained.architectures.own import OWN
from zoo.pretrained.architectures.phi import PHI3

ARCHITECTURES = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": MISTRAL,
    "Qwen2ForCausalLM": QWEN2,
    "Qwen3ForCausalLM": QWEN3,
    "SmolLM3ForCausalLM": SMOLLM3,
    "Gemma3ForCausalLM": GEMMA3,
    "Olmo2ForCausalLM": OLMO2,
    "Olmo3ForCausalLM": OLMO3,
    "Cohere2ForCausalLM": COHERE2,
    "Phi3ForCausalLM": PHI3,
    "Exaone4ForCausalLM": EXAONE4,
    "Ministral3ForCausalLM": MINISTRAL3,
    "GPTNeoXForCausalLM": GPT_NEOX,
    "GPT2LMHeadModel": GPT2,
    "BloomForCausalLM": BLOOM,
    "MptForCausalLM": MPT,
    "ModernBertForMaskedLM": MODERNBERT,
    "BertForMaskedLM": BERT,
}
"""Each by its name in `config.json`; the names of their base models end with `Model`."""


def architecture_of(values: dict[str, Any], where: str) -> tuple[str, Architecture]:
    """The name and the table of the architecture that a configuration names.

    Raises:
        InputError: none, one that is not known, or one of another `model_type`.
    """
    named, kind = values.get("architectures") or [], values.get("model_type") or ""
    if kind == OWN.model_type:
        return "ZooForCausalLM", OWN
    same = [name for name, one in ARCHITECTURES.items() if one.model_type == kind]
    if same and all(str(name).endswith("Model") for name in named):
        named = same
    for name in filter(ARCHITECTURES.__contains__, named):
        expected = ARCHITECTURES[name].model_type
        if kind not in ("", expected):
            message = f"{kind!r} is not the {expected!r} of {name}"
            raise InputError(Problem(message, key="model_type", where=where))
        return name, ARCHITECTURES[name]
    name = str(named[0]) if named else kind
    # Names are alike where models are not: no near one is suggested.
    message = f"{name!r} cannot be imported; the supported architectures are {', '.join(ARCHITECTURES)}"
    raise InputError(Problem(message, key="architectures", where=where))


def architecture_for(model: Model) -> tuple[Architecture | None, str]:
    """The architecture that holds a model; or None and why the nearest cannot: `no Llama: norm is ...`.

    Args:
        model: the section of the run's recipe, resolved, with its `d_ff`.
    """

    def distance(pair: tuple[list[str], Architecture]) -> tuple[int, bool]:
        # Another encoding is farther away than another option of the same.
        return len(pair[0]), any(fault.startswith("encoding is") for fault in pair[0])

    faults, near = min(((one.faults(model), one) for one in ARCHITECTURES.values()), key=distance)
    return (None, f"no {near.title}: {', '.join(faults)}") if faults else (near, "")
