"""Observe a model: distance and entropy of its attention, the weight on the first token, the norm of the
residual stream and the loss, by position.

One layer and one block of queries are held at a time and reduced to bins of positions and distances.

Arrays have their shape in their docstring: W sequences, L layers, H heads, T tokens, N bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.data.blocks import NOT_SCORED
from zoo.models.logit_scale import visible_keys
from zoo.models.transformer import Transformer

BLOCK_ELEMENTS = 2**22
"""Attention weights that are held at a time."""
BINS_PER_OCTAVE = 4
FIRST_OF_LOSSES, LOSSES_PER_OCTAVE = 16, 2
"""A loss differs more from token to token than the rest: its bins are wider."""


@dataclass(frozen=True)
class Activations:
    """Means over the queries of each bin, NaN where a bin has none."""

    length: int
    """T, of the sequences that were read, in tokens."""
    trained: int
    """The trained length, in tokens."""
    bins: np.ndarray
    """[N+1]: bin i has the positions, or the distances, from bins[i] to bins[i + 1] - 1."""
    attention: np.ndarray
    """[W,L,H,2,N]: the weight of a visible key that is so many tokens away, of the queries within the trained
    length and of those beyond it."""
    entropy: np.ndarray
    """[W,L,H,N], of a query's attention as shares of its sum, in nats, by its position."""
    first: np.ndarray
    """[W,L,H,N]: the weight on the first token of the sequence, by the query's position."""
    most: np.ndarray
    """[N]: log n, in nats, the entropy of attention that is the same for all n visible keys; of the first
    layer."""
    norm: np.ndarray
    """[W,L+1,N]: the Euclidean norm of the residual stream before the first layer, and after each."""
    loss_bins: np.ndarray
    """[M+1], of positions, as `bins`."""
    loss: np.ndarray
    """[W,M], in nats, of the prediction at a position; NaN where there is none."""


def middles(bins: np.ndarray) -> np.ndarray:
    """[N]: the middle of each bin of positions or distances, in tokens."""
    return (bins[:-1] + bins[1:] - 1) / 2


def bin_edges(length: int, first: int = 1, per_octave: int = BINS_PER_OCTAVE) -> np.ndarray:
    """Bins of the numbers from 0 to length - 1: `first` of them, then so many bins to a doubling, none empty.

    >>> bin_edges(12).tolist(), bin_edges(64, 16, 2).tolist()
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12], [0, 16, 23, 32, 45, 64])
    """
    edges, step = [0], 0
    while edges[-1] < length:
        edges.append(min(max(edges[-1] + 1, round(first * 2 ** (step / per_octave))), length))
        step += 1
    return np.array(edges)


@torch.no_grad()
def observe(model: Transformer, batch: Mapping[str, Tensor], trained: int) -> Activations:
    """Observe a model while it reads sequences, one at a time.

    Args:
        batch: `tokens` [W,T], and optionally `targets` [W,T] (-100: not predicted), or for a pointer `answer`
            [W], the position.
        trained: the trained length, in tokens.

    Raises:
        ValueError: sequences longer than the encoding can take.
    """
    length = batch["tokens"].shape[1]
    bins, loss_bins = bin_edges(length), bin_edges(length, FIRST_OF_LOSSES, LOSSES_PER_OCTAVE)
    read: list[dict[str, Tensor]] = []
    for row in range(len(batch["tokens"])):
        one = {name: values[row : row + 1] for name, values in batch.items()}
        with _watched(model, bins, trained) as seen:
            nats = _losses(model, one)
        found = {name: torch.stack(values) for name, values in seen.items()}
        norms = found.pop("norms")
        read.append({**found, "norm": _by_bin(norms, bins), "loss": _by_bin(nats, loss_bins)})
    together = {name: torch.stack([one[name] for one in read]).cpu().numpy() for name in read[0]}
    together["most"] = together["most"][0, 0]
    return Activations(length=length, trained=trained, bins=bins, loss_bins=loss_bins, **together)


@contextmanager
def _watched(model: Transformer, bins: np.ndarray, trained: int) -> Iterator[dict[str, list[Tensor]]]:
    """The observations of a forward pass of one sequence: lists with a tensor for each layer."""
    seen: dict[str, list[Tensor]] = {name: [] for name in ("attention", "entropy", "first", "most", "norms")}

    def attended(module: nn.Module, given: tuple[Any, ...]) -> None:
        for name, value in _reduced(module, given, bins, trained).items():
            seen[name].append(value)

    def entered(module: nn.Module, given: tuple[Any, ...]) -> None:
        seen["norms"].append(given[0][0].float().norm(dim=-1))

    handles = [block.attention.register_forward_pre_hook(attended) for block in model.blocks]
    handles += [module.register_forward_pre_hook(entered) for module in (*model.blocks, model.final_norm)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _reduced(
    attention: nn.Module, given: tuple[Any, ...], bins: np.ndarray, trained: int
) -> dict[str, Tensor]:
    """One layer's attention on one sequence, by bin."""
    x_BTE, view, contexts = given[:3]
    heads, length, device = attention.num_heads, x_BTE.shape[1], x_BTE.device
    bin_of, count = _bin_of(bins, device), len(bins) - 1
    # Sums over the pairs of each bin of distances, of queries within the trained length and then beyond it.
    sums, pairs = torch.zeros(heads, 2 * count, device=device), 0
    entropy, first = [], []
    rows = max(1, BLOCK_ELEMENTS // (heads * length))
    for context, weights_BHTS in attention.weight_blocks(x_BTE, view, contexts, rows):
        weights_HTS = weights_BHTS[0].float()
        # NaN, which the means leave out, for a query that has no weight on any key.
        shares_HTS = weights_HTS / weights_HTS.sum(-1, keepdim=True)
        entropy.append(torch.special.entr(shares_HTS).sum(-1))
        first.append(weights_HTS[..., 0])
        query = torch.arange(context.num_queries, device=device)[:, None] + context.query_offset
        distance = (query - torch.arange(context.num_keys, device=device)).abs()
        cell = (bin_of[distance] + count * (query >= trained)).flatten()
        sums.index_add_(1, cell, weights_HTS.flatten(1))
        pairs = pairs + torch.bincount(cell[context.allowed().flatten()], minlength=2 * count)
    log_n = visible_keys(contexts[0]).float().log()
    return {
        "attention": (sums / pairs).unflatten(-1, (2, count)),
        "entropy": _by_bin(torch.cat(entropy, 1), bins),
        "first": _by_bin(torch.cat(first, 1), bins),
        "most": _by_bin(log_n, bins),
    }


def _bin_of(bins: np.ndarray, device: torch.device) -> Tensor:
    """The bin of each number from 0 on, int64."""
    return torch.from_numpy(np.repeat(np.arange(len(bins) - 1), np.diff(bins))).to(device)


def _by_bin(values: Tensor, bins: np.ndarray) -> Tensor:
    """Means of values [...,T] over each bin, [...,N]. NaN is left out; NaN where that leaves none."""
    index, known = _bin_of(bins, values.device), ~values.isnan()
    shape = (*values.shape[:-1], len(bins) - 1)
    totals = values.new_zeros(shape).index_add_(-1, index, values.nan_to_num(nan=0.0, posinf=np.inf))
    return totals / values.new_zeros(shape).index_add_(-1, index, known.to(values.dtype))


def _losses(model: Transformer, batch: Mapping[str, Tensor]) -> Tensor:
    """One forward pass of a sequence: the loss in nats at each position, [T], NaN where nothing is asked."""
    tokens = batch["tokens"]
    nothing = torch.full(tokens.shape[1:], torch.nan, device=tokens.device)
    if model.pointer and "answer" in batch:
        logits = model(tokens).float()
        nothing[batch["answer"]] = F.cross_entropy(logits, batch["answer"])
        return nothing
    if not model.pointer and "targets" in batch:
        nats = model(tokens, targets=batch["targets"], reduction="none")
        return nats[0].float().masked_fill(batch["targets"][0] == NOT_SCORED, torch.nan)
    model.hidden(tokens)
    return nothing
