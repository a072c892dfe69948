"""The words of a text as points in space: their vectors without position and with it, under each encoding.

Tensors have their shape in their name: T tokens, E width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from zoo.encodings.base import Size
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError
from zoo.figures.encoding import stack_of
from zoo.figures.hooks import Layer
from zoo.recipe.encoding import encoding_label
from zoo.seeds import seed_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FRAMES = 12
"""Of the movement from the vectors without position to those with it."""
WIDTH, HEADS = 64, 4
"""Of the vectors, which are those of a head too, and the number of heads; the first is drawn."""
FEWEST, MOST = 2, 24
"""Words of a text."""


@dataclass(frozen=True)
class Cloud:
    """The points of one encoding, without position and with it, [T,3] each."""

    label: str
    without: np.ndarray
    placed: np.ndarray
    caption: str


def vectors_of(words: Sequence[str]) -> Tensor:
    """A vector for each word, [T,E], the same in every text: N(0, 1/E), as Vaswani et al. 2017
    (arXiv:1706.03762, 3.4) have them with their sinusoids."""

    def draw(word: str) -> Tensor:
        generator = torch.Generator().manual_seed(seed_of(0, "word", word))
        return torch.randn(WIDTH, generator=generator) / WIDTH**0.5

    return torch.stack([draw(word) for word in words])


@torch.no_grad()
def hooked(stack: EncodingStack, vectors_TE: Tensor, placed: bool = True) -> np.ndarray:
    """Token vectors [T,E] after `embed` and after `rotate` of the first head's queries.

    Args:
        placed: whether each token is at its position, or all at position 0.
    """
    layer = Layer(stack.layer(0).encodings, stack.size, len(vectors_TE), moved=placed)
    x_BTE = layer.embedded(vectors_TE[None])
    q_BHTD = x_BTE[0].expand(1, HEADS, -1, -1)
    rotated_BHTD = layer.view.rotate(q_BHTD, q_BHTD, layer.reading(x_BTE))[0]
    # An encoding that computes the whole score itself leaves queries of width 0.
    return (rotated_BHTD if rotated_BHTD.shape[-1] else q_BHTD)[0, 0].double().numpy()


def clouds(specs: Sequence[Any], text: str) -> tuple[list[Cloud], list[str]]:
    """The points of all encodings in one projection, and the words.

    Args:
        specs: encodings as a resolved recipe has them.

    Raises:
        InputError: too few or too many words, for a cloud or for an encoding.
    """
    words = text.split()
    if not FEWEST <= len(words) <= MOST:
        raise InputError(f"--tokens takes a text of {FEWEST} to {MOST} words; this one has {len(words)}")
    vectors_TE, found = vectors_of(words), []
    for spec in specs:
        size = Size(WIDTH, HEADS, 1, max(64, len(words)), causal=True, width_of_head=WIDTH)
        label, stack = encoding_label(spec), stack_of(spec, size)
        if stack.max_length is not None and len(words) > stack.max_length:
            raise InputError(f"encoding {label!r} ends at {stack.max_length} tokens")
        without, placed = hooked(stack, vectors_TE, placed=False), hooked(stack, vectors_TE)
        # Some encodings multiply all vectors, or add the same to each.
        middle = without.mean(0)
        length = np.linalg.norm(without - middle, axis=1).mean()
        vectors = np.stack([without - middle, placed - middle]) / (length or 1.0)
        found.append((label, vectors, _caption(stack, moves=not np.allclose(without, placed, atol=1e-6))))
    points = project([vectors for _, vectors, _ in found])
    made = zip(found, points, strict=True)
    return [Cloud(label, *both, caption) for (label, _, caption), both in made], words


def project(sets: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Vectors [2,T,E] of each encoding as points [2,T,3] along the principal axes of all vectors together.

    No point is farther than 1 from the middle. The largest component of each axis is positive.
    """
    width = max(one.shape[-1] for one in sets)
    wide = [np.pad(one, ((0, 0), (0, 0), (0, width - one.shape[-1]))) for one in sets]
    together = np.concatenate(wide).reshape(-1, width)
    axes = np.linalg.svd(together, full_matrices=False)[2][:3].T
    axes = np.pad(axes, ((0, 0), (0, 3 - axes.shape[1])))
    axes *= np.where(axes[np.abs(axes).argmax(0), range(3)] < 0, -1.0, 1.0)
    farthest = np.linalg.norm(together @ axes, axis=1).max() or 1.0
    return [one @ axes / farthest for one in wide]


def _caption(stack: EncodingStack, moves: bool) -> str:
    layer, parts = stack.layer(0), []
    if moves and any(encoding.uses("embed") for encoding in layer.encodings):
        parts.append("A vector of its position is added to each token: repeated words separate.")
    if moves and layer.rotating:
        parts.append("Each query is rotated by its position, in a plane for each pair of dimensions.")
    if layer.biased:
        parts.append("The bias changes scores and moves no vector.")
    if layer.scored or layer.reshaped or layer.valued:
        parts.append("The position enters scores or output together with the content.")
    if layer.weighing:
        parts.append("Attention weights are not a softmax of the scores.")
    return " ".join(parts) or "No vector moves: the order is known from the causal mask alone."


def figure(cloud: Cloud, words: Sequence[str]) -> Figure:
    """A cloud as a scatter plot of plotly in space, with frames that move it to its positions."""
    from plotly import graph_objects as go

    names = [f"{word} {index}" if list(words).count(word) > 1 else word for index, word in enumerate(words)]
    marker = {"size": 7, "color": np.arange(len(words)), "colorscale": "Viridis"}

    def points(share: float) -> Any:
        x, y, z = ((1 - share) * cloud.without + share * cloud.placed).T
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
