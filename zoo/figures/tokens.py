"""The words of a text as points in space: their vectors without position and with it, under each encoding.

Tensors have their shape in their name: T tokens, H heads, E width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from zoo.encodings.base import AttentionContext, Size
from zoo.encodings.stack import EncodingStack, LayerEncodings
from zoo.errors import InputError
from zoo.recipe.encoding import encoding_label
from zoo.seeds import seed_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FRAMES = 12
"""Of the movement from the vectors without position to those with it."""
WIDTH, HEADS = 64, 4
"""Of the vectors, which are those of a head too, and how many heads there are; drawn is the first."""
FEWEST, MOST = 2, 24
"""Words of a text."""


@dataclass(frozen=True)
class Cloud:
    """One encoding's points.

    Attributes:
        label: the encoding, in a word.
        without, placed: [T,3] float64, the points without position and with it, by the same projection.
        weights: [T], the attention that the last token would pay to each if its scores were the bias of the
            first head alone; None where there is no such bias.
        caption: what to see.
    """

    label: str
    without: np.ndarray
    placed: np.ndarray
    weights: np.ndarray | None
    caption: str

    @property
    def moves(self) -> bool:
        """Whether positions change any vector."""
        return not np.allclose(self.without, self.placed, atol=1e-6)


@dataclass(frozen=True)
class Projection:
    """From vectors to points: vectors @ axes / scale, for all encodings of a picture the same.

    Attributes:
        axes: [E,3], orthonormal: the three directions in which all vectors together differ most.
        scale: a number, so that no point is farther than 1 from the middle.
        kept: the share of their squared length that these directions hold.
    """

    axes: np.ndarray
    scale: float
    kept: float

    def __call__(self, vectors_TE: np.ndarray) -> np.ndarray:
        return widened(vectors_TE, len(self.axes)) @ self.axes / self.scale


def words_of(text: str) -> list[str]:
    """The words of a text, which are its tokens here. Raises InputError for too few or too many of them."""
    words = text.split()
    if not FEWEST <= len(words) <= MOST:
        raise InputError(f"--tokens takes a text of {FEWEST} to {MOST} words; this one has {len(words)}")
    return words


def vectors_of(words: Sequence[str], seed: int = 0) -> Tensor:
    """A vector for each word, [T,E], from (seed, word): the same word has the same one.

    N(0, 1/E), as Vaswani et al. 2017 (arXiv:1706.03762, 3.4) have them beside their sinusoids.
    """

    def draw(word: str) -> Tensor:
        generator = torch.Generator().manual_seed(seed_of(seed, "word", word))
        return torch.randn(WIDTH, generator=generator) / WIDTH**0.5

    return torch.stack([draw(word) for word in words])


@torch.no_grad()
def hooked(stack: EncodingStack, vectors_TE: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """What an encoding makes of token vectors [T,E]: without position, and with it, [T,E'] each.

    As in a model whose projections change nothing: first `embed`, then `rotate` of the first head's queries.
    Without position all tokens are at position 0.
    """
    ids = torch.arange(len(vectors_TE))
    view = stack.layer(0)

    def queries(placed: bool) -> np.ndarray:
        contexts = []
        for encoding in view.encodings:
            pos = encoding.positions(ids, 1) if encoding.uses("positions") else ids
            if not placed and encoding.reads_positions:
                pos = torch.zeros_like(pos)
            contexts.append(AttentionContext(pos, pos, causal=stack.size.causal, consecutive=pos is ids))
        x_BTE = stack.embed(vectors_TE[None], [[context] for context in contexts])
        return _rotated(view, x_BTE, x_BTE[0].expand(1, HEADS, -1, -1), contexts)[0, 0].double().numpy()

    return queries(placed=False), queries(placed=True)


def _rotated(
    view: LayerEncodings, x_BTE: Tensor, q_BHTD: Tensor, contexts: Sequence[AttentionContext]
) -> Tensor:
    contexts = [
        replace(context, features=one) for context, one in zip(contexts, view.read(x_BTE), strict=True)
    ]
    rotated_BHTD = view.rotate(q_BHTD, q_BHTD, contexts)[0]
    # One that makes the whole score itself leaves nothing to be multiplied.
    return rotated_BHTD if rotated_BHTD.shape[-1] else q_BHTD


def clouds(specs: Sequence[Any], text: str, seed: int = 0) -> tuple[list[Cloud], Projection, list[str]]:
    """The points of all encodings, what projects them, and the words.

    Args:
        specs: encodings as a resolved recipe has them.

    Raises:
        InputError: an encoding that takes no such model, or a text of too few or too many words.
    """
    words = words_of(text)
    vectors_TE, found = vectors_of(words, seed), []
    for spec in specs:
        label = encoding_label(spec)
        stack = _stack(spec, len(words), seed)
        if stack.max_length is not None and len(words) > stack.max_length:
            raise InputError(f"encoding {label!r} ends at {stack.max_length} tokens")
        found.append((label, stack, *comparable(*hooked(stack, vectors_TE))))
    projection = fit([vectors for _, _, *both in found for vectors in both])
    made = []
    for label, stack, without, placed in found:
        caption = _caption(stack, moves=not np.allclose(without, placed, atol=1e-6))
        weights = _weights(stack, len(words))
        made.append(Cloud(label, projection(without), projection(placed), weights, caption))
    return made, projection, words


def _stack(spec: Any, length: int, seed: int) -> EncodingStack:
    size = Size(WIDTH, HEADS, 1, max(64, length), causal=True, width_of_head=WIDTH)
    try:
        return EncodingStack(spec, size, seed).eval()
    except InputError:  # some are for encoders alone
        return EncodingStack(spec, replace(size, causal=False), seed).eval()


def comparable(without_TE: np.ndarray, placed_TE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both moved and scaled alike, so that without position the middle is 0 and the mean length 1: some
    encodings multiply all vectors, or add the same to each."""
    middle = without_TE.mean(0)
    length = float(np.linalg.norm(without_TE - middle, axis=1).mean()) or 1.0
    return (without_TE - middle) / length, (placed_TE - middle) / length


def widened(vectors_TE: np.ndarray, width: int) -> np.ndarray:
    """With zeros behind: some encodings make queries wider."""
    return np.pad(vectors_TE, ((0, 0), (0, width - vectors_TE.shape[1])))


def fit(sets: Sequence[np.ndarray]) -> Projection:
    """The principal axes of all vectors together. The same vectors give the same axes: of each, the largest
    component is positive."""
    width = max(one.shape[1] for one in sets)
    together = np.concatenate([widened(one, width) for one in sets])
    _, sizes, rows = np.linalg.svd(together, full_matrices=False)
    axes = np.zeros((width, 3))
    count = min(3, len(rows))
    axes[:, :count] = rows[:count].T
    largest = axes[np.abs(axes).argmax(0), range(3)]
    axes *= np.where(largest < 0, -1.0, 1.0)
    total = float((sizes**2).sum())
    kept = float((sizes[:3] ** 2).sum() / total) if total else 1.0
    return Projection(axes, float(np.linalg.norm(together @ axes, axis=1).max()) or 1.0, kept)


def _weights(stack: EncodingStack, length: int) -> np.ndarray | None:
    if not stack.layer(0).biased:
        return None
    return stack.bias_table(1, length)[0, 0].double().softmax(-1).numpy()


def _caption(stack: EncodingStack, moves: bool) -> str:
    view = stack.layer(0)
    parts = []
    if moves and any(encoding.uses("embed") for encoding in view.encodings):
        parts.append("A vector of its position is added to each token: repeated words separate.")
    if moves and view.rotating:
        parts.append("Each query is rotated by its position, in a plane for each pair of dimensions.")
    if view.biased:
        parts.append(
            "The bias moves no vector. The size of a dot is the attention of the last token to it by the "
            "bias of the first head alone."
        )
    if view.scored or view.reshaped or view.valued:
        parts.append("The position enters scores or output together with the content.")
    return " ".join(parts) or "No vector moves: the order is known from the causal mask alone."


def figure(cloud: Cloud, words: Sequence[str]) -> Figure:
    """A cloud as a scatter plot of plotly in space, with frames that move it to its positions."""
    from plotly import graph_objects as go

    names = [f"{word} {index}" if list(words).count(word) > 1 else word for index, word in enumerate(words)]
    sizes = 6 + 30 * cloud.weights if cloud.weights is not None else np.full(len(words), 7)

    def points(share: float) -> Any:
        x, y, z = ((1 - share) * cloud.without + share * cloud.placed).T
        marker = {"size": sizes, "color": np.arange(len(words)), "colorscale": "Viridis"}
        return go.Scatter3d(
            x=x, y=y, z=z, mode="markers+text+lines", text=names, marker=marker, line={"width": 1}
        )

    shares = [index / FRAMES for index in range(FRAMES + 1)]
    made = go.Figure(points(1.0), frames=[go.Frame(data=[points(one)], name=str(one)) for one in shares])
    play = {"frame": {"duration": 80}, "transition": {"duration": 0}}
    buttons = [
        {"label": label, "method": "animate", "args": [[str(one) for one in order], play]}
        for label, order in (("add positions", shares), ("remove positions", shares[::-1]))
    ]
    box = {"range": [-1.1, 1.1], "showticklabels": False, "title": ""}
    made.update_layout(
        scene={"xaxis": box, "yaxis": box, "zaxis": box, "aspectmode": "cube"}, height=480,
        margin={"l": 0, "r": 0, "t": 40, "b": 0}, showlegend=False,
        updatemenus=[{"type": "buttons", "direction": "left", "x": 0, "y": 1.05, "buttons": buttons}],
    )  # fmt: skip
    return made
