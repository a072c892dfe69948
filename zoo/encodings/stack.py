"""The encodings of one model, as its layers see them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from zoo import registry
from zoo.encodings.base import AttentionContext, Encoding, Size, softmax
from zoo.encodings.likely_cause import explained, line_of
from zoo.errors import InputError
from zoo.seeds import seed_of

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
            if option.name in spec and registry.holds_wrapped(option.annotation):
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
            first = _seeded(spec, replace(size, layer=0), seed_of(seed, "encoding", index, 0))
            slot = [first]
            if first.per_layer:
                slot += [
                    _seeded(spec, replace(size, layer=layer), seed_of(seed, "encoding", index, layer))
                    for layer in range(1, size.num_layers)
                ]
            self.slots.append(nn.ModuleList(slot))

        for layer in range(size.num_layers):
            _validate_combination(self.of_layer(self.slots, layer))

    def layer(self, index: int) -> LayerEncodings:
        return LayerEncodings(self.of_layer(self.slots, index))

    def of_layer(self, slots: Sequence[Sequence[Made]], layer: int) -> list[Made]:
        """From one value for each instance (see `each`), those of the instances in a layer."""
        return [slot[layer if len(slot) > 1 else 0] for slot in slots]

    def each(self, make: Callable[[Encoding], Made]) -> list[list[Made]]:
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
        keys, layers = queries if keys is None else keys, self.size.num_layers
        if not 0 < queries <= keys or keys > (self.max_length or keys):
            raise InputError(
                f"{queries} queries of {keys} keys: from 1 query to {self.max_length or keys} keys"
            )
        if not 0 <= layer < layers:
            raise InputError(f"no layer {layer}: this model has layers 0 to {layers - 1}")
        encodings = self.of_layer(self.slots, layer)
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
        limits = [getattr(encoding, limit) for slot in self.slots for encoding in slot]
        limits = [one for one in limits if one is not None]
        # Not min(..., default=None), which torch.compile cannot follow.
        return min(limits) if limits else None


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
            f"encodings {lacks.name!r} and {needs.name!r} cannot be combined: the scores of {lacks.name!r} "
            f"leave out a number that a softmax ignores and {needs.name!r} does not; keep one of them"
        )


def _seeded(spec: Spec, size: Size, seed: int) -> Encoding:
    """An encoding whose initial weights depend on `seed` only, not on the device: it is built on the CPU."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
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
