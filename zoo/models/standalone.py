"""Encodings in a model that is not the zoo's.

Tensors have their shape in their name: B batch, T new tokens, H query heads, G key heads, D head width,
E model width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from zoo.encodings.base import Size
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError, Problem, hint
from zoo.models.attention import encoded
from zoo.models.cache import Cache
from zoo.models.plans.choose import attend
from zoo.recipe.encoding import check_encoding, encodings_in
from zoo.recipe.tree import dotted

KERNELS = ("auto", "sdpa", "flex", "reference")


def encoding(
    spec: Any,
    *,
    d_model: int,
    num_heads: int,
    num_layers: int,
    length: int,
    head_dim: int | None = None,
    causal: bool = True,
    scale: float | None = None,
    kernel: str = "auto",
    seed: int = 0,
) -> StandaloneEncoding:
    """An encoding for the attention of your own model.

        encoding = zoo.encoding("fire", d_model=512, num_heads=8, num_layers=6, length=1024)
        x = encoding.embed(x)                            # before the first layer
        out = encoding.attend(q, k, v, x=x, layer=3)     # in place of scaled_dot_product_attention

    Args:
        spec: as `model.encoding` of a recipe: a name, a mapping of a name and its options, or a list.
        d_model: width of your model.
        num_heads: query heads of a layer.
        num_layers: layers of your model.
        length: the trained length in tokens.
        head_dim: by default d_model / num_heads.
        causal: whether a token sees itself and those before it only.
        scale: of the products of queries and keys, and of all that an encoding divides by sqrt(D) with them;
            by default 1/sqrt(D).
        kernel: `auto`, or `sdpa`, `flex` or `reference` to insist on one.
        seed: of the initial parameters.

    Raises:
        InputError: an unknown name or option, an encoding that is not for a model of this size or not for
            training, or sizes that no model has.
    """
    resolved, faults = check_encoding(spec, ())
    sizes = {"d_model": d_model, "num_heads": num_heads, "num_layers": num_layers, "length": length}
    for key, number in {**sizes, "head_dim": 1 if head_dim is None else head_dim}.items():
        if not isinstance(number, int) or number < 1:
            faults[key,] = f"must be a whole number above 0, got {number!r}"
    if not faults and head_dim is None and d_model % num_heads:
        faults["num_heads",] = f"{num_heads} heads do not divide d_model {d_model}; give head_dim"
    if kernel not in KERNELS:
        faults["kernel",] = hint(kernel, KERNELS)
    for at, about in encodings_in(resolved, ()):
        if about.replaces:
            trained = " or ".join(about.replaces)
            faults[at] = f"{about.name} is for evaluation: no model is trained with it, but with {trained}"
    if faults:
        raise InputError([Problem(fault, key=dotted(at)) for at, fault in faults.items()])
    shape = d_model, num_heads, num_layers, length
    size = Size(*shape, causal, width_of_head=head_dim, attention_scale=scale)
    return StandaloneEncoding(EncodingStack(resolved, size, seed), kernel)


class StandaloneEncoding(nn.Module):
    """The encodings of all layers of a model, and the attention that they take part in; see `encoding`.

    Its parameters are those of the encodings. Keep it in your model, so that an optimizer finds them.
    """

    def __init__(self, stack: EncodingStack, kernel: str = "auto"):
        super().__init__()
        self.stack, self.kernel = stack, kernel
        instances = [one for slot in stack.slots for one in slot]
        self.needs_embed = any(one.uses("embed") or one.uses("positions") for one in instances)
        """Whether each forward pass has to begin with `embed`, for its vectors or its positions."""
        self._contexts: list[list[AttentionContext]] | None = None
        self._cache: Cache | None = None

    def cache(self) -> Cache:
        """An empty cache of keys and values to decode with, for `embed`."""
        return Cache(self.stack.size.num_layers)

    def embed(
        self,
        x_BTE: Tensor,
        *,
        keep: Tensor | None = None,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        tokens: Tensor | None = None,
    ) -> Tensor:
        """Begin a forward pass: token vectors [B,T,E] to the input of the first layer.

        The arguments hold for all layers. Without them, and unless `needs_embed`, it changes nothing.

        Args:
            keep: [B,T], False at padding, which no token sees and which has no position.
            documents: [B,T], the row in which the document of each token begins: a token sees its own.
            positions: [T] or [B,T], in place of 0, 1, 2 ...
            cache: earlier tokens; these are appended.
            tokens: [B,T], their ids, for an encoding that reads them.

        Raises:
            ValueError: longer than the encoding can take, or missing ids.
        """
        batch, length, _ = x_BTE.shape
        given = keep, cache, positions, documents, tokens
        self._contexts = self.stack.contexts(batch, length, x_BTE.device, *given)
        self._cache = cache
        return self.stack.embed(x_BTE, self._contexts)

    def attend(
        self,
        q_BHTD: Tensor,
        k_BGTD: Tensor,
        v_BGTD: Tensor,
        *,
        layer: int,
        x: Tensor | None = None,
        window: int | None = None,
    ) -> Tensor:
        """Attention of one layer with its encodings, [B,H,T,D].

        Args:
            q_BHTD, k_BGTD, v_BGTD: projections of the new tokens, not rotated. Query heads share key heads
                where G is below H.
            layer: from 0.
            x: [B,T,E], the source of their projections; encodings with gates or other features need it.
            window: the number of tokens that a query sees on each side it looks to, itself included.

        Raises:
            ValueError: `embed` did not begin this forward pass, `x` is missing, no such layer, or another
                number or width of heads.
        """
        batch, heads, length, width = q_BHTD.shape
        size = self.stack.size
        if heads != size.num_heads:
            raise ValueError(
                f"queries of {heads} heads, but the encoding is for {size.num_heads}: give "
                f"zoo.encoding(..., num_heads={heads})"
            )
        if width != size.head_dim:
            raise ValueError(
                f"queries of width {width}, but the encoding is for heads of {size.head_dim}: give "
                f"zoo.encoding(..., head_dim={width})"
            )
        encodings = self.stack.layer(layer)
        if x is None and any(one.uses("read") for one in encodings.encodings):
            raise ValueError(
                "this encoding reads what queries and keys were projected from: attend(..., x=x)"
            )
        # A memo that outlives a layer would keep its graph from being computed again in a backward pass.
        shared: dict = {}
        contexts = [
            replace(context, window=window, shared=shared)
            for context in self.stack.instances_of_layer(self._begun(batch, length, q_BHTD.device), layer)
        ]
        cache = None if self._cache is None else self._cache.layers[layer]
        q_BHTD, k_BHSD, v_BHSD, scores = encoded(q_BHTD, k_BGTD, v_BGTD, x, encodings, contexts, cache)
        out_BHTD = attend(q_BHTD, k_BHSD, v_BHSD, scores, size.scale, self.kernel)
        return encodings.output(out_BHTD, scores.contexts)

    def bias_table(self, queries: int, keys: int | None = None, layer: int = 0) -> Tensor:
        """The bias of the positions alone in a layer, [H,T,S], to plot; see `EncodingStack.bias_table`."""
        return self.stack.bias_table(queries, keys, layer)

    def _begun(self, batch: int, length: int, device: torch.device) -> list[list[AttentionContext]]:
        """The contexts of the forward pass that `embed` began, or of one that it need not begin."""
        if self._contexts is None and not self.needs_embed:
            return self.stack.contexts(batch, length, device)
        if self._contexts is None or self._contexts[0][0].num_queries != length:
            raise ValueError(
                f"attention of {length} tokens without x = encoding.embed(x) before the first layer"
            )
        return self._contexts
