"""The encodings of one model, as its layers see them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from zoo import registry
from zoo.encodings.base import Encoding, Size, positions_by_document, shortest, softmax
from zoo.encodings.context import AttentionContext, longest_document
from zoo.encodings.likely_cause import explained, line_of
from zoo.errors import InputError
from zoo.seeds import mixed, seed_of

if TYPE_CHECKING:
    from zoo.models.cache import Cache

Made = TypeVar("Made")
Spec = dict[str, Any]
"""{"name": ..., option: ...}, as in a resolved recipe. An option that holds an encoding is itself such a
dict, one that holds several a list of them."""


def build_encoding(spec: Spec | str, size: Size) -> Encoding:
    """The encoding that a recipe asks for.

    Raises:
        InputError: unknown name, a kind of model that it is not for, or options that it cannot take.
    """
    spec = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = spec.pop("name")
    about = registry.encodings.describe(name)
    fits, other = (about.decoder, about.encoder) if size.causal else (about.encoder, about.decoder)
    # The contract reports an encoding that is declared for neither.
    if other and not fits:
        raise InputError(f"encoding {name!r} is not for {'a decoder' if size.causal else 'an encoder'}")
    try:
        cls, options = registry.encodings.load(name), dict(spec)
        for option in about.options:
            if option.name in spec and option.wraps:
                spec[option.name] = _build_wrapped(
                    spec[option.name], lambda index: cls.size_inside(size, options, index)
                )
        encoding = cls(size, **spec)
        _ = encoding.size  # AttributeError where a constructor does not call that of `Encoding`
        return encoding
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(f"encoding {name!r}: {error}") from error
    except Exception as error:
        # Torch raises RuntimeError for a size that overflows.
        if about.builtin and not isinstance(error, RuntimeError | OverflowError):
            raise
        where = "" if about.builtin else f"{line_of(error, [about]) or about.where}: "
        raise InputError(f"{where}encoding {name!r} cannot be built: {explained(error)}") from error


def _build_wrapped(value: Spec | str | Sequence[Spec] | None, size_of: Callable[[int], Size]) -> Any:
    if isinstance(value, (dict, str)):
        return build_encoding(value, size_of(0))
    return None if value is None else [build_encoding(spec, size_of(i)) for i, spec in enumerate(value)]


class EncodingStack(nn.Module):
    """Builds a model's encodings: one instance for all layers, or one for each where an encoding asks for it.

    `view(layer)` has the encodings of a layer; `embed` is applied to the token vectors before the first one.
    """

    def __init__(self, specs: Spec | Sequence[Spec], size: Size, seed: int = 0):
        super().__init__()
        self.size = size
        self.slots = nn.ModuleList()
        for index, spec in enumerate([specs] if isinstance(specs, (dict, str)) else specs):
            slot = nn.ModuleList()
            while not slot or (slot[0].per_layer and len(slot) < size.num_layers):
                slot.append(_seeded(spec, replace(size, layer=len(slot)), seed, index))
            self.slots.append(slot)

        for layer in range(size.num_layers):
            _validate_combination(self.instances_of_layer(self.slots, layer))

    def layer(self, index: int) -> LayerEncodings:
        return LayerEncodings(self.instances_of_layer(self.slots, index))

    def instances_of_layer(self, slots: Sequence[Sequence[Made]], layer: int) -> list[Made]:
        """From one value for each instance (see `each`), those of the instances in a layer.

        Raises:
            InputError: no such layer.
        """
        if not 0 <= layer < self.size.num_layers:
            raise InputError(f"no layer {layer}: this model has layers 0 to {self.size.num_layers - 1}")
        return [slot[layer if len(slot) > 1 else 0] for slot in slots]

    def map_instances(self, make: Callable[[Encoding], Made]) -> list[list[Made]]:
        """make(encoding) for each instance of each encoding; once for those with the same key."""
        made: list[list[Made]] = []
        for slot in self.slots:
            shared: dict[Hashable, Made] = {}
            made.append([])
            for encoding in slot:
                key = encoding.position_key
                one = shared[key] if key in shared else make(encoding)
                if key is not None:
                    shared[key] = one
                made[-1].append(one)
        return made

    def seed_draws(
        self, seed: int, step: int, tokens: Tensor, first: int = 0, documents: Tensor | None = None
    ) -> None:
        """Let the positions of the next forward passes be drawn from seed, step, layer and sequence.

        Args:
            tokens, documents: of this process, [B,T], as in `Transformer.forward`.
            first: the row of its first sequence in the batch of all processes.
        """
        drawing = [
            (name, one)
            for name, one in self.named_modules()
            if isinstance(one, Encoding) and one.uses("positions")
        ]
        if not drawing:
            return
        count, length = tokens.shape
        numbers = torch.arange(first, first + count, device=tokens.device) * length + 1
        if documents is not None:
            rows = torch.arange(length, device=tokens.device)
            numbers = (numbers[:, None] + rows)[documents == rows]
        numbers = torch.cat((numbers.new_zeros(1), numbers))
        for name, one in drawing:
            high, low = divmod(seed_of(seed, "positions", step, name), 2**32)
            one.seeds = mixed(mixed((numbers + low) & 0xFFFFFFFF) ^ high)

    def contexts(
        self,
        batch: int,
        length: int,
        device: torch.device,
        keep: Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> list[list[AttentionContext]]:
        """The context of each instance in one forward pass (see `each`), without the window of a layer.

        Args:
            batch, length, device: of the new tokens, B and T.
            keep, cache, positions, documents: as in `Transformer.forward`. A cache takes the new tokens in.
            tokens: [B,T], their ids, for encodings that read them.

        Raises:
            ValueError: longer than the encodings can take, also with a cache, documents with one of the
                others, or missing ids.
        """
        past = 0 if cache is None else cache.length
        self._check_length(past + length, cache is not None, documents)
        if documents is not None:
            if keep is not None or cache is not None or positions is not None:
                raise ValueError("separate documents go with no padding, no cache and no positions")
            positions = torch.arange(length, device=device) - documents
        if keep is None and cache is not None and cache.keep is not None:
            keep = torch.ones(batch, length, dtype=torch.bool, device=device)
        keep_BS = keep if cache is None or keep is None else cache.extend_keep(keep)
        if positions is not None:
            ids_BT = positions
        elif keep_BS is None:
            ids_BT = torch.arange(past, past + length, device=device)
        else:
            # Padding is not counted: the first token after it is at position 0.
            ids_BT = (keep_BS.long().cumsum(1) - 1).clamp(min=0)[:, past:]
        tokens_BS = tokens
        if any(encoding.reads_tokens for slot in self.slots for encoding in slot):
            if tokens is None:
                raise ValueError("this encoding reads the token ids: give tokens too")
            tokens_BS = tokens if keep is None else tokens.masked_fill(~keep, -1)
            tokens_BS = tokens_BS if cache is None else cache.extend_tokens(tokens_BS)
        if cache is not None:
            cache.length += length
        plain = AttentionContext(
            q_pos=ids_BT,
            k_pos=ids_BT if cache is None else cache.extend_positions(self, ids_BT),
            query_offset=past,
            causal=self.size.causal,
            keep=keep_BS,
            documents=documents,
            consecutive=keep_BS is None and positions is None and (cache is None or cache.consecutive),
        )
        if cache is not None:
            cache.consecutive = plain.consecutive

        def context_of(encoding: Encoding) -> AttentionContext:
            if not encoding.uses("positions"):
                return plain
            if documents is None:
                pos = encoding.positions(ids_BT, batch, *((tokens_BS,) if encoding.reads_tokens else ()))
            else:
                pos = positions_by_document(encoding, ids_BT, tokens)
            k_pos = pos if cache is None else cache.extend_positions(encoding, pos)
            return replace(plain, q_pos=pos, k_pos=k_pos, consecutive=False)

        return self.map_instances(context_of)

    def _check_length(self, length: int, cached: bool, documents: Tensor | None) -> None:
        limit = self.max_length
        if limit is not None and documents is not None and length > limit:
            length = longest_document(documents)
        if limit is not None and length > limit:
            raise ValueError(f"a sequence of {length} tokens, but the encoding ends at {limit}")
        limit = self.max_cached_length
        if cached and limit is not None and length > limit:
            raise ValueError(
                f"a sequence of {length} tokens with a cache, but beyond {limit} the positions of "
                f"this encoding depend on the full length: run it without a cache"
            )

    def embed(self, x: Tensor, contexts: Sequence[Sequence[AttentionContext]]) -> Tensor:
        """The token vectors that enter the first layer. `contexts` holds one for each instance."""
        for slot, slot_spans in zip(self.slots, contexts, strict=True):
            x = slot[0].embed(x, slot_spans[0].q_pos)
        return x

    @torch.no_grad()
    def bias_table(self, queries: int, keys: int | None = None, layer: int = 0) -> Tensor:
        """The bias that the positions alone add to the scaled scores of a layer, [H,T,S], in float32, without
        a mask. Terms that depend on content are not in it.

        Args:
            queries: T, the last of the keys.
            keys: S, by default as many.
            layer: from 0.

        Raises:
            InputError: no encoding of this layer adds such a bias, or sizes that the model does not have.
        """
        keys = queries if keys is None else keys
        if not 0 < queries <= keys or keys > (self.max_length or keys):
            raise InputError(
                f"{queries} queries of {keys} keys: from 1 query to {self.max_length or keys} keys"
            )
        encodings = self.instances_of_layer(self.slots, layer)
        biased = [encoding for encoding in encodings if encoding.uses("bias")]
        if not biased:
            named = ", ".join(encoding.name for encoding in encodings)
            raise InputError(f"{named} adds no bias of positions alone; see model.attention(tokens)")
        device = next((x.device for x in (*self.parameters(), *self.buffers())), None)
        ids = torch.arange(keys, device=device)
        total = torch.zeros(self.size.num_heads, queries, keys, device=device)
        for encoding in biased:
            pos = encoding.positions(ids, 1) if encoding.uses("positions") else ids
            plain = AttentionContext(pos, pos, causal=self.size.causal, consecutive=pos is ids)
            table = encoding.bias_table(plain.queries(keys - queries, keys), self.size.num_heads)
            total += table[0] if table.dim() == 4 else table
        return total

    @property
    def max_length(self) -> int | None:
        return self._shortest("max_length")

    @property
    def max_cached_length(self) -> int | None:
        return self._shortest("max_cached_length")

    def _shortest(self, limit: str) -> int | None:
        return shortest([encoding for slot in self.slots for encoding in slot], limit)


def _validate_combination(encodings: Sequence[Encoding]) -> None:
    """Raises InputError if two encodings of a list decide the same thing, or one lacks what another needs."""
    for hook, decision, others in (
        ("rotate", "how queries and keys are multiplied", "encodings that add to the scores"),
        ("weights", "which weights the scores give", "encodings that keep the softmax"),
    ):
        names = [repr(e.name) for e in encodings if e.uses(hook)]
        if len(names) > 1:
            raise InputError(
                f"encodings {' and '.join(names)} cannot be combined: each decides {decision}; "
                f"keep one of them, with {others}"
            )
    needing = [e for e in encodings if e.needs_offset and e.uses("weights")]
    for lacks, needs in ((a, b) for a in encodings if a.lacks_offset for b in needing if a is not b):
        raise InputError(
            f"encodings {lacks.name!r} and {needs.name!r} cannot be combined"
            f"{' with model.logit_scale' * needs.size.logits_scaled}: the scores of {lacks.name!r} leave out "
            f"a number that a softmax ignores and {needs.name!r} does not; keep one of them"
        )


def _seeded(spec: Spec, size: Size, seed: int, index: int) -> Encoding:
    """An encoding whose start depends on seed, place and layer, not on the device: it is built on the CPU."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed_of(seed, "encoding", index, size.layer))
        encoding = build_encoding(spec, size)
    return encoding.to(torch.get_default_device())


class LayerEncodings:
    """The encodings of one layer: each hook applies theirs in turn; `read` returns one entry for each."""

    def __init__(self, encodings: Sequence[Encoding]):
        self.encodings = list(encodings)
        self.rotating = self._using("rotate")
        self.biased = self._using("bias")
        self.scored = self._using("score")
        self.reshaped = self._using("logits")
        self.weighing = self._using("weights")
        self.valued = self._using("value")
        self.changing_values = self._using("values")
        self.changing_output = self._using("output")

    def _using(self, hook: str) -> list[int]:
        return [i for i, encoding in enumerate(self.encodings) if encoding.uses(hook)]

    @property
    def rotation_is_final(self) -> bool:
        """Whether a rotated key can be cached: later tokens do not change it."""
        return bool(self.rotating) and all(self.encodings[i].rotation_is_final for i in self.rotating)

    @property
    def rotates_by_position(self) -> bool:
        """Whether a rotation may depend on the positions of queries."""
        return any(self.encodings[i].reads_positions for i in self.rotating)

    @property
    def adds(self) -> bool:
        """Whether anything is added to the products of queries and keys."""
        return bool(self.biased or self.scored)

    @property
    def needs_weights(self) -> bool:
        """Whether a hook needs the logits or the attention weights, which no fused kernel returns."""
        return bool(self.reshaped or self.weighing or self.valued)

    @property
    def reads_content(self) -> bool:
        """Whether a hook asks for queries and keys as they are before any rotation."""
        return bool(self.scored or self.reshaped)

    @property
    def heads_with_positions(self) -> list[bool]:
        """For each head, whether one of the encodings reads position ids in it."""
        return [
            any(reads) for reads in zip(*(one.heads_with_positions for one in self.encodings), strict=True)
        ]

    def read(self, x: Tensor) -> list[Tensor | None]:
        return [encoding.read(x) for encoding in self.encodings]

    def values(self, v: Tensor, contexts: Sequence[AttentionContext]) -> Tensor:
        for i in self.changing_values:
            v = self.encodings[i].values(v, contexts[i])
        return v

    def output(self, out: Tensor, contexts: Sequence[AttentionContext]) -> Tensor:
        for i in self.changing_output:
            out = self.encodings[i].output(out, contexts[i])
        return out

    def rotate(self, q: Tensor, k: Tensor, contexts: Sequence[AttentionContext]) -> tuple[Tensor, Tensor]:
        for i in self.rotating:
            q, k = self.encodings[i].rotate(q, k, contexts[i])
        return q, k

    def weights(self, logits: Tensor, contexts: Sequence[AttentionContext]) -> Tensor:
        """Attention weights [B,H,T,S] from logits that are -inf where a query may not see a key."""
        if not self.weighing:
            return softmax(logits)
        (i,) = self.weighing
        return self.encodings[i].weights(logits, contexts[i])
