"""Reading a `config.json` so that nothing in it is ignored that would change the model.

An architecture has a table of its keys with their defaults in `transformers`. A key of the table that `read`
does not take must have its default. A key outside the table is a problem, unless it changes no logits of a
trained model, or is null, false or empty.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from zoo.errors import InputError, Problem, nearest

NO_CHANGE = {
    "_attn_implementation_autoset", "_name_or_path", "architectures", "attention_dropout",
    "attention_softmax_in_fp32", "attn_impl", "attn_pdrop", "attn_type", "attn_uses_sequence_id",
    "bias_dropout_fusion", "bos_token_id", "chunk_size_feed_forward", "classifier_dropout",
    "decoder_start_token_id", "dtype", "emb_pdrop", "embd_pdrop", "eos_token_id", "gradient_checkpointing",
    "hidden_dropout", "id2label", "init_config", "init_device", "initializer_range", "is_decoder",
    "is_llama_config", "label2id", "learned_pos_emb", "masked_softmax_fusion", "max_window_layers",
    "model_type", "n_ctx", "norm_type", "offset_alibi", "output_attentions", "output_hidden_states",
    "pad_token_id", "pretraining_tp", "problem_type", "reorder_and_upcast_attn", "resid_pdrop",
    "return_dict", "sep_token_id", "skip_bias_add", "skip_bias_add_qkv", "slow_but_exact",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "task_specific_params", "tokenizer_class", "torch_dtype", "torchscript",
    "transformers.js_config", "transformers_version", "unk_token_id", "unsloth_version", "use_bfloat16",
    "use_cache", "verbose", "cache_implementation", "_sliding_window_pattern", "classifier_pooling",
    "cls_token_id", "deterministic_flash_attn", "embedding_dropout", "initializer_cutoff_factor",
    "mlp_dropout", "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index",
    "sparse_prediction", "attention_probs_dropout_prob", "hidden_dropout_prob",
}  # fmt: skip
"""Keys that concern training, other heads, storage or speed; or that only some architectures read."""
REQUIRED: Any = object()
NONE, NUMBER = type(None), (int, float)


class Config:
    """A `config.json`, and the problems found in it.

    Args:
        values: its content.
        where: the file, for messages.
        defaults: the keys of the architecture and their defaults, REQUIRED where there is none.
        ignored: unknown keys that the user takes the responsibility for.
    """

    def __init__(
        self,
        values: dict[str, Any],
        where: str,
        defaults: Mapping[str, Any],
        ignored: Collection[str] = (),
        prefix: str = "",
    ):
        self.values, self.where, self.ignored, self.prefix = values, where, ignored, prefix
        self.defaults = dict(defaults)
        self.taken: set[str] = set()
        self.reader = "this architecture"
        self.problems: list[Problem] = []

    def take(self, *names: str, kind: type | tuple[type, ...] = int) -> Any:
        """The value of a key that may have several names, or its default.

        A key outside the table of the architecture is left alone: None. Noted as problems are a missing key
        without a default, a value of another kind, and two names with two values.
        """
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if names[0] not in self.defaults:
            return None
        self.taken.update(names)
        given = {name: self.values[name] for name in names if name in self.values}
        given = {name: value for name, value in given.items() if value is not None} or given
        name, value = next(iter(given.items()), (names[0], self.defaults[names[0]]))
        if value is REQUIRED:
            near = nearest(name, self.values.keys() - self.defaults.keys() - NO_CHANGE)
            self.problem(name, f"missing; is it {near!r}?" if near else "missing")
        elif not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.problem(name, f"{value!r} is not of type {' or '.join(one.__name__ for one in kinds)}")
        else:
            for other in given:
                if given[other] != value:
                    self.problem(other, f"{given[other]!r} is not the {value!r} of {name}, its other name")
            return value
        return kinds[0]()

    def section(self, key: str, defaults: Mapping[str, Any]) -> Config:
        """A mapping in it; empty where there is none. Call `finish` on it too."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self.problem(key, f"{value!r} is not a mapping")
        self.taken.add(key)
        inner = value if isinstance(value, dict) else {}
        one = Config(inner, self.where, defaults, self.ignored, f"{self.prefix}{key}.")
        one.problems = self.problems
        return one

    def problem(self, key: str, message: str) -> None:
        problem = Problem(message, key=self.prefix + key, where=self.where)
        if problem not in self.problems:  # a key may be taken twice
            self.problems.append(problem)

    def finish(self) -> None:
        """Note every key that was not taken and may change the model."""
        for key, value in self.values.items():
            full = self.prefix + key
            if key in self.taken | NO_CHANGE or full in self.ignored:
                continue
            if key in self.defaults:
                if value != self.defaults[key]:
                    self.problem(key, f"{value!r} cannot be imported, only {self.defaults[key]!r}")
            elif value is not None and value is not False and value not in ({}, [], ""):
                self.problem(
                    key,
                    f"{str(value)[:60]} is not known for {self.reader} and may change the logits; "
                    f"--ignore {full} if it does not",
                )

    def check(self) -> None:
        """Raises InputError with all that was found."""
        self.finish()
        if self.problems:
            raise InputError(self.problems)
