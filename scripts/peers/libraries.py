"""Decoders of Hugging Face and of x-transformers, of one size, each with its own loss.

A builder takes a size and whether the library's fastest attention is asked for, and gives the model and what
computes the loss of tokens [B,T+1]. Where a library has no such option the second is without effect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from peers.bare import Bare, Size

Built = tuple[nn.Module, Callable[[Tensor], Tensor]]


def bare(size: Size, fast: bool) -> Built:
    model = Bare(size)
    return model, model


def hugging_face(architecture: str, size: Size, fast: bool) -> Built:
    """A causal language model from its configuration; the library shifts the labels and takes the loss."""
    import transformers

    common = {"vocab_size": size.vocabulary, "tie_word_embeddings": True, "use_cache": False}
    if architecture == "Llama":
        # Three matrices of 8/3 instead of two of 4: as many parameters.
        config = transformers.LlamaConfig(
            hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=size.heads,
            intermediate_size=-(-8 * size.width // 3 // 8) * 8, max_position_embeddings=size.length, **common,
        )  # fmt: skip
    elif architecture == "GPT-2":
        config = transformers.GPT2Config(
            n_embd=size.width, n_layer=size.layers, n_head=size.heads, n_positions=size.length,
            bos_token_id=None, eos_token_id=None,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common,
        )  # fmt: skip
    else:
        config = transformers.BloomConfig(
            hidden_size=size.width, n_layer=size.layers, n_head=size.heads, **common
        )
    model = transformers.AutoModelForCausalLM.from_config(config)

    def loss(tokens: Tensor) -> Tensor:
        tokens = tokens[:, :-1]
        return model(tokens, labels=tokens).loss

    return model, loss


class T5Decoder(nn.Module):
    """The decoder of T5 alone: its stack without the cross-attention, its scaled tied head, and HF's loss."""

    def __init__(self, size: Size):
        super().__init__()
        from transformers import T5Config
        from transformers.models.t5.modeling_t5 import T5Stack

        config = T5Config(
            vocab_size=size.vocabulary, d_model=size.width, d_kv=size.width // size.heads,
            d_ff=4 * size.width, num_layers=size.layers, num_heads=size.heads, dropout_rate=0.0,
            is_decoder=True, use_cache=False,
        )  # fmt: skip
        config.is_encoder_decoder = False
        self.stack = T5Stack(config)
        for block in self.stack.block:
            del block.layer[1]
        if self.stack.get_input_embeddings() is None:
            self.stack.set_input_embeddings(nn.Embedding(size.vocabulary, size.width))
        self.stack.post_init()
        self.scale, self.vocabulary = size.width**-0.5, size.vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        from transformers.loss.loss_utils import ForCausalLMLoss

        tokens = tokens[:, :-1]
        hidden = self.stack(tokens, use_cache=False).last_hidden_state * self.scale
        logits = hidden @ self.stack.get_input_embeddings().weight.T
        return ForCausalLMLoss(logits, tokens, self.vocabulary)


def t5(size: Size, fast: bool) -> Built:
    model = T5Decoder(size)
    return model, model


def x_transformers(option: str | None, size: Size, fast: bool) -> Built:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(
        dim=size.width, depth=size.layers, heads=size.heads, attn_dim_head=size.width // size.heads,
        attn_flash=fast and option != "rel_pos_bias",  # its fused attention takes no bias that is learned
        **({option: True} if option not in (None, "learned") else {}),
    )  # fmt: skip
    model = TransformerWrapper(
        num_tokens=size.vocabulary, max_seq_len=size.length, attn_layers=layers, tie_embedding=True,
        use_abs_pos_emb=option == "learned",
    )  # fmt: skip
    wrapped = AutoregressiveWrapper(model)
    return wrapped, lambda tokens: wrapped(tokens[:, :-1])


BUILDERS: dict[tuple[str, str], Callable[[Size, bool], Built]] = {
    ("bare loop", "none"): bare,
    ("HF Llama", "rope"): partial(hugging_face, "Llama"),
    ("HF GPT-2", "learned"): partial(hugging_face, "GPT-2"),
    ("HF BLOOM", "alibi"): partial(hugging_face, "BLOOM"),
    ("HF T5 decoder", "t5"): t5,
    ("x-transformers", "none"): partial(x_transformers, None),
    ("x-transformers", "learned"): partial(x_transformers, "learned"),
    ("x-transformers", "rope"): partial(x_transformers, "rotary_pos_emb"),
    ("x-transformers", "alibi"): partial(x_transformers, "alibi_pos_bias"),
    ("x-transformers", "t5"): partial(x_transformers, "rel_pos_bias"),
}
