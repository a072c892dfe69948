"""A decoder of the zoo as a model of `transformers`, for what none of its own architectures can hold.

`generate`, `peft` and lm-evaluation-harness take it like any other; weights keep the names that they have in
a checkpoint of the zoo.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from zoo.models.cache import Cache
from zoo.models.transformer import Decoder
from zoo.pretrained.architectures.own import MODEL_TYPE
from zoo.recipe import schema
from zoo.recipe.sections import resolve_encoding

CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"
"""The name of the cache that `generate` gives and takes: renamed in transformers 5.24."""


class ZooConfig(PretrainedConfig):
    """The content of `config.json`.

    Args:
        recipe_model: the section `model` of the run's recipe.
        vocab_size: number of token ids.
        max_position_embeddings: the trained length in tokens; the encoding decides about longer sequences.
        use_cache: by default. False for an encoding whose positions depend on the length of the sequence.
    """

    model_type = MODEL_TYPE
    keys_to_ignore_at_inference = (CACHE,)

    def __init__(
        self,
        recipe_model: dict[str, Any] | None = None,
        vocab_size: int = 0,
        max_position_embeddings: int = 0,
        use_cache: bool = True,
        **options: Any,
    ):
        self.recipe_model = recipe_model or {}
        self.vocab_size = vocab_size
        self.max_position_embeddings = max_position_embeddings
        self.use_cache = use_cache
        # Under the names that tools for inference and measurement look for.
        self.hidden_size = self.recipe_model.get("d_model")
        self.num_hidden_layers = self.recipe_model.get("num_layers")
        self.num_attention_heads = self.recipe_model.get("num_heads")
        # Where they are tied there is no output layer that could be tied to the embedding.
        options["tie_word_embeddings"] = False
        super().__init__(**options)

    def model_config(self) -> schema.ModelConfig:
        """The section `model`, validated. Raises ValueError where it is none."""
        given = {**self.recipe_model, "encoding": resolve_encoding(self.recipe_model.get("encoding"))}
        return schema.ModelConfig.model_validate(given)


class GenerationCache(Cache):
    """The cache of the zoo, with what `generate` asks of one."""

    is_compileable = False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Beam search: sequence i continues sequence beam_idx[i]."""
        self.select(beam_idx)


class ZooForCausalLM(PreTrainedModel, GenerationMixin):
    """The decoder with the vocabulary's logits. A cache is the zoo's own, made in the first step."""

    config_class = ZooConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _supports_sdpa = True
    _supports_flash_attn = False

    def __init__(self, config: ZooConfig):
        super().__init__(config)
        # `from_pretrained` builds models without memory and in the precision of the weights. Buffers that are
        # not stored (frequencies, slopes) are computed in float32.
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            with torch.device("cpu"):
                model = Decoder(config.model_config(), config.vocab_size, config.max_position_embeddings)
        finally:
            torch.set_default_dtype(dtype)
        self.model = model.to(dtype)
        self._computed = {
            module: {name: module.get_buffer(name).clone() for name in module._non_persistent_buffers_set
                     if getattr(module, name) is not None}
            for module in self.model.modules()
        }  # fmt: skip
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        # Weights are drawn at construction; `from_pretrained` empties buffers that are not stored.
        with torch.no_grad():
            for name, value in self._computed.get(module, {}).items():
                module.get_buffer(name).copy_(value)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        # Encodings keep more than keys and values.
        return False

    def get_input_embeddings(self) -> nn.Module:
        return self.model.tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model.tokens = value

    def get_output_embeddings(self) -> nn.Module | None:
        return self.model.head

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.model.head = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast | tuple[Tensor, ...]:
        """Logits [B,T,V] of token ids [B,T], and their mean loss in nats where there are labels [B,T].

        Args:
            attention_mask: [B,T], or [B,S] with those of the cache; 0 at padding, on either side.
            cache: what an earlier call gave; `past_key_values` is its name before transformers 5.24.
            labels: the token ids themselves, -100 where none is scored.
            logits_to_keep: of the last so many positions only, or of those with these indices; 0: of all.

        Raises:
            ValueError: for what the model cannot do: vectors in place of tokens, a mask that is not [B,S],
                another cache than its own, attention weights or the hidden states of all layers.
        """
        if input_ids is None or inputs_embeds is not None:
            raise ValueError("a model of the zoo reads input_ids; inputs_embeds are not supported")
        if output_attentions or output_hidden_states:
            raise ValueError("a model of the zoo gives neither attentions nor hidden states of its layers")
        cache = past_key_values if cache is None else cache
        if cache is not None and not isinstance(cache, Cache):
            kind = type(cache).__name__
            raise ValueError(f"{CACHE} is what this model gave, not a {kind}: encodings keep more than keys")
        keep = None
        if attention_mask is not None:
            if attention_mask.dim() != 2:
                raise ValueError(f"attention_mask is [batch, tokens], not {list(attention_mask.shape)}")
            mask = attention_mask[:, -input_ids.shape[1] :].bool()
            # Without padding positions are 0, 1, 2 ..., which is faster.
            keep = None if mask.all() else mask
        # In training each call begins anew, and a cache would only hold memory.
        wanted = self.config.use_cache if use_cache is None else use_cache
        if cache is None and wanted and not self.training:
            cache = GenerationCache(self.model.num_layers)
        hidden = self.model.hidden(input_ids, keep, cache)
        rows = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.model.unembed(hidden[:, rows])
        loss = None
        if labels is not None:
            count = kwargs.get("num_items_in_batch")
            loss = self.loss_function(
                logits, labels, vocab_size=self.config.vocab_size, num_items_in_batch=count
            )
        given = CausalLMOutputWithPast(loss=loss, logits=logits, **{CACHE: cache})
        wants_dict = getattr(self.config, "return_dict", True) if return_dict is None else return_dict
        return given if wants_dict else given.to_tuple()
