"""Reading a `config.json` so that nothing in it is ignored that would change the model.

An architecture takes the keys that it understands. What is left over is a problem, unless it is known to
change no logits of a trained model, or is null, false or empty.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from zoo.errors import InputError, Problem, nearest

NO_CHANGE = {
    "_name_or_path", "architectures", "attention_dropout", "attention_softmax_in_fp32", "attn_impl",
    "attn_pdrop", "attn_type", "attn_uses_sequence_id", "bias_dropout_fusion", "bos_token_id",
    "chunk_size_feed_forward", "classifier_dropout", "decoder_start_token_id", "dtype", "emb_pdrop",
    "embd_pdrop", "eos_token_id", "gradient_checkpointing", "hidden_dropout", "id2label", "init_config",
    "init_device", "initializer_range", "is_decoder", "label2id", "masked_softmax_fusion", "model_type",
    "n_ctx", "output_attentions", "output_hidden_states", "pad_token_id", "pretraining_tp", "problem_type",
    "resid_pdrop", "return_dict", "sep_token_id", "skip_bias_add", "skip_bias_add_qkv", "slow_but_exact",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "task_specific_params", "tokenizer_class", "torch_dtype", "torchscript",
    "transformers.js_config", "transformers_version", "unk_token_id", "use_bfloat16", "use_cache", "verbose",
}  # fmt: skip
"""Keys that concern training, other heads, storage or speed."""
REQUIRED: Any = object()


class Config:
    """A `config.json`, and what was found wrong with it.

    Args:
        values: its content.
        where: the file, for messages.
        ignored: keys that the user takes the responsibility for.
    """

    def __init__(self, values: dict[str, Any], where: str, ignored: Collection[str] = (), prefix: str = ""):
        self.values, self.where, self.ignored, self.prefix = values, where, ignored, prefix
        self.known: set[str] = set()
        self.problems: list[Problem] = []

    def take(self, *keys: str, kind: type | tuple[type, ...] = int, default: Any = REQUIRED) -> Any:
        """The value of the first of these keys that there is; they are names of one thing.

        A value of another kind is noted as a problem, and so is a missing one without a default.
        """
        self.known.update(keys)
        key = next((one for one in keys if self.values.get(one) is not None), None)
        if key is None:
            if default is REQUIRED:
                near = nearest(keys[0], self.values)
                self.problem(keys[0], f"missing; is it {near!r}?" if near else "missing")
                return kind() if isinstance(kind, type) else kind[0]()
            return default
        value = self.values[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.problem(key, f"{value!r} is not of type {' or '.join(one.__name__ for one in kinds)}")
            return kinds[0]() if default is REQUIRED else default
        return value

    def only(self, key: str, *allowed: Any) -> None:
        """Note any value but these, the first of which is the default, as one that cannot be imported."""
        self.known.add(key)
        value = self.values.get(key, allowed[0])
        if value not in allowed:
            self.problem(key, f"{value!r} cannot be imported, only {' or '.join(map(repr, allowed))}")

    def section(self, key: str) -> Config:
        """A mapping in it; empty where there is none. Call `finish` on it too."""
        self.known.add(key)
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self.problem(key, f"{value!r} is not a mapping")
        inner = value if isinstance(value, dict) else {}
        one = Config(inner, self.where, self.ignored, f"{self.prefix}{key}.")
        one.problems = self.problems
        return one

    def problem(self, key: str, message: str) -> None:
        self.problems.append(Problem(message, key=self.prefix + key, where=self.where))

    def finish(self) -> None:
        """Note every key that nobody has taken and that may change the model."""
        for key, value in self.values.items():
            if key in self.known | NO_CHANGE or self.prefix + key in self.ignored:
                continue
            if value is None or value is False or value in ({}, [], ""):
                continue
            full = self.prefix + key
            self.problem(
                key,
                f"{str(value)[:60]} is not known for this architecture and may change what it computes; "
                f"--ignore {full} if it does not",
            )

    def check(self) -> None:
        """Raises InputError with all that was found."""
        self.finish()
        if self.problems:
            raise InputError(self.problems)
