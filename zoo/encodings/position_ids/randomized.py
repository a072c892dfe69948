"""Randomized positions."""

from typing import Literal

import torch
from torch import Tensor

from zoo.encodings.base import Encoding, Size
from zoo.encodings.wrapper import Wrapper, check_reads_positions
from zoo.registry import register
from zoo.seeds import seed_of

PRIME = 2**31 - 1


@register("randomized")
class Randomized(Wrapper):
    """Tokens stand at sorted random positions from a range longer than any sequence, around another encoding.

    n tokens get n positions drawn without replacement from 0 .. max_position - 1, in rising order; so every
    position that a longer sequence will need has been met in training. One draw serves the whole batch: its
    sequences of the same length stand at the same positions, and a shorter one at a draw of its own length.

    Options:
        of: the encoding that sees these positions. A learned table must have max_position rows.
        max_position: how many positions there are to draw from, in tokens; no sequence can be longer.
        continuous: whether positions are real numbers, drawn one by one from U(0, max_position) (random float
            sampling, Shimizu, Taniguchi, Matsuo 2026, arXiv:2602.14050). The wrapped encoding must be defined
            between positions.
        draw: `once` for all layers, or each `layer` for itself, as the authors' code does for encodings that
            enter in attention (rotary, ALiBi, relative). Layers of an `interleave` that place their tokens in
            ways of their own draw for themselves in either case.
        evaluation: what happens outside training. `draw`: positions are drawn here too, as published; the
            draw is fixed by the length of the sequence, so that the same tokens always give the same result,
            and touches no random state. `spread`: i stands at the mean of its draws, rounded down unless
            `continuous`. `plain`: 0, 1, 2 ... . The first two need the length beforehand and cannot decode
            with a cache.

    For ALiBi and relative encodings the authors' code draws distances, the same ones seen from every query;
    here positions are drawn throughout, and distances are their differences. Checked against a loop over the
    draw, statistics of the draws, and identity: with max_position the length of the sequence, it is plain.
    `continuous` was written from the paper's description and checked against a loop alone.
    """

    formula = (
        r"p_0 < p_1 < \cdots < p_{n-1},"
        r"\qquad \{p_i\} \subset \{0, \ldots, M-1\} \text{ drawn without replacement}"
    )
    paper = "Ruoss et al. 2023 (arXiv:2305.16843)"
    family = "position ids"
    extrapolates = "policy"
    after_training = ("evaluation",)

    def __init__(
        self,
        size: Size,
        *,
        of: Encoding,
        max_position: int = 2048,
        continuous: bool = False,
        draw: Literal["once", "layer"] = "once",
        evaluation: Literal["draw", "spread", "plain"] = "draw",
    ):
        super().__init__(size, of)
        check_reads_positions(of, "to draw positions for it changes nothing")
        if max_position < size.length:
            raise ValueError(f"max_position {max_position} is below the trained length {size.length}")
        if of.num_positions is not None and of.num_positions < max_position:
            raise ValueError(
                f"positions are drawn from 0 to {max_position - 1}, but {of.name!r} has only "
                f"{of.num_positions}: give it table_length: {max_position}, or draw from fewer"
            )
        if continuous and of.integer_positions:
            raise ValueError(
                f"{of.name!r} takes integer positions from 0 on only, and continuous draws real numbers"
            )
        if draw == "layer" and of.uses("embed"):
            raise ValueError(f"{of.name!r} is met once, before the first layer: draw must be once, not layer")
        self.max_position = max_position
        self.continuous = continuous
        self.evaluation = evaluation
        # Positions are looked up in the draw.
        self.integer_positions = True
        if evaluation != "plain":
            # As far as max_position says.
            self.extrapolates = "policy"
            # Further on, another draw.
            self.relative = False
        if draw == "layer":
            self.per_layer = True
            self.position_key = None
        else:
            self.position_key = ("drawn once", of.position_key)
        layer = size.layer if draw == "layer" else None
        generator = torch.Generator().manual_seed(seed_of("randomized", layer))
        factor, offset = torch.randint(PRIME, (2, max_position), generator=generator)
        self.register_buffer("factor", factor, persistent=False)
        self.register_buffer("offset", offset, persistent=False)

    @property
    def _plain(self) -> bool:
        return not self.training and self.evaluation == "plain"

    @property
    def max_length(self) -> int | None:
        if self._plain:
            return self.of.max_length
        return min(self.max_position, self.of.max_length or self.max_position)

    @property
    def max_cached_length(self) -> int | None:
        return self.of.max_cached_length if self.evaluation == "plain" else 0

    @property
    def num_positions(self) -> int | None:
        return self.of.num_positions if self._plain else self.max_position

    def uses(self, hook: str) -> bool:
        return self.of.uses(hook) or (hook == "positions" and not self._plain)

    def positions(self, ids: Tensor, batch: int) -> Tensor:
        if not self._plain:
            # Longer sequences have been refused before this point, and the clamp changes nothing; unless the
            # tokens were said to stand so far out, where all share the last position.
            ids = ids.clamp(max=self.max_position - 1)
            length = ids.amax(-1, keepdim=True).long() + 1
            if not self.training and self.evaluation == "spread":
                if self.continuous:
                    ids = (ids + 1) * self.max_position / (length + 1)
                else:
                    ids = (ids + 1) * (self.max_position + 1) // (length + 1) - 1
            else:
                # Many documents have few lengths.
                each, which = length.unique(return_inverse=True) if ids.dim() > 1 else (length, 0)
                ids = self._drawn(each[:, None])[which, ids.long()]
        return self.of.positions(ids, batch)

    def _drawn(self, length: Tensor) -> Tensor:
        """The draw for sequences of these lengths [...,1]: their positions in rising order, then filling."""
        if self.training:
            order = self.random(None, self.max_position, length.device)
            order = order * self.max_position if self.continuous else order.argsort(stable=True)
        else:
            # Numbers for each length, by a family of hash functions: exact on every device, without a
            # generator, and the draws of two lengths are independent. Their order is a permutation.
            hashed = (self.offset + self.factor * length) % PRIME
            if self.continuous:
                order = (hashed.double() * (self.max_position / PRIME)).float()
            else:
                order = hashed.argsort(dim=-1, stable=True)
        taken = torch.arange(self.max_position, device=length.device) < length
        return order.where(taken, self.max_position).sort(-1).values
