"""`zoo draw NAME --tokens TEXT`: a cloud of tokens that turns, first without position and then with it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.console import progress_bar
from zoo.errors import InputError
from zoo.figures.style import CAPTION, DARK, FAINT, INK, LIGHT, RC, styles
from zoo.figures.token_cloud import Cloud, Projection, clouds
from zoo.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRAMES, STILL, MOVING = 48, 12, 10
"""Of the moving picture: in all, before positions come, and while they do."""
MILLISECONDS = 110
"""Of a frame."""
TILT = math.radians(18)
"""How far one looks down on the clouds."""
LARGEST = 2_000_000
"""Bytes of a moving picture."""
DOTS = (110, 85, 65, 50)
"""Per inch, tried in this order until the picture is small enough."""
COLORS = 128
SAME = 0.12
"""The same words closer than this have one label together."""


@dataclass(frozen=True)
class TokenFigure:
    """Clouds of the same words, one for each encoding, by the same projection.

    Attributes:
        words: the T tokens, in order.
    """

    clouds: Sequence[Cloud]
    projection: Projection
    words: Sequence[str]

    @property
    def title(self) -> str:
        return "Tokens without position and with it"

    @property
    def explanation(self) -> str:
        """What all clouds have in common."""
        return (
            "Each dot is a token; the darker, the earlier. Vectors are random and fixed by their word. All "
            "clouds are projected by the same three directions, in which all vectors together differ most "
            f"({self.projection.kept:.0%} of their variance)."
        )

    def frame(self, cloud: Cloud, number: int, frames: int = FRAMES) -> np.ndarray:
        """The points of a cloud in a frame, [T,3]: right, up, and towards the reader."""
        share = min(1.0, max(0.0, (number * FRAMES / frames - STILL) / MOVING))
        share = share * share * (3 - 2 * share)
        points = (1 - share) * cloud.without + share * cloud.placed
        return turned(points, 2 * math.pi * number / frames)

    def save(self, path: str | Path, frames: int = FRAMES) -> None:
        """Write a moving picture (.gif) or a page to turn by hand (.html).

        Raises:
            InputError: another ending.
            OSError: it cannot be written.
        """
        path = Path(path)
        if path.suffix == ".gif":
            atomic_write(path, self._gif(frames))
        elif path.suffix == ".html":
            atomic_write(path, self.page())
        else:
            raise InputError(
                f"{path}: a cloud of tokens moves: --out takes a name that ends in .gif or .html"
            )

    def page(self) -> str:
        """The page: it loads nothing and works from a disk; without a script its tables have all points."""
        looks, count = styles([cloud.label for cloud in self.clouds]), len(self.words)
        light, dark = (
            " ".join(f".hue-{n} {{ --hue: {hues[look.hue]}; }}" for n, look in enumerate(looks.values()))
            for hues in (LIGHT, DARK)
        )
        style = f"{_asset('tokens.css')}{light} @media screen and (prefers-color-scheme: dark) {{ {dark} }}"
        data = {
            "clouds": [
                {
                    "without": cloud.without.round(4).tolist(),
                    "placed": cloud.placed.round(4).tolist(),
                    "weights": None if cloud.weights is None else cloud.weights.round(4).tolist(),
                }
                for cloud in self.clouds
            ],
            "words": list(self.words),
            "colors": [_color(index, count) for index in range(count)],
            "tilt": TILT,
        }
        return render(
            _asset("tokens.html"),
            figure=self,
            title=f"{self.title}: {', '.join(looks)}",
            style=style,
            script=_asset("tokens.js"),
            # Within the element of a script nothing else could end it.
            data=json.dumps(data).replace("<", "\\u003c"),
        )

    def _gif(self, frames: int) -> bytes:
        for dots in DOTS:
            content = self._drawn(frames, dots)
            if len(content) <= LARGEST:
                break
        return content

    def _drawn(self, frames: int, dots: int) -> bytes:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from PIL import Image

        looks = styles([cloud.label for cloud in self.clouds])
        columns = min(3, len(self.clouds))
        rows = math.ceil(len(self.clouds) / columns)
        images = []
        with matplotlib.rc_context(RC), progress_bar(frames, "drawing", "frame", leave=False) as bar:
            figure = Figure(figsize=(3.4 * columns, 3.6 * rows + 0.4), dpi=dots)
            canvas = FigureCanvasAgg(figure)
            grid = figure.subplots(rows, columns, squeeze=False).ravel()
            figure.subplots_adjust(left=0.01, right=0.99, top=1 - 0.3 / figure.get_figheight(), bottom=0.09)
            said = textwrap.fill(self.explanation, 62 * columns)
            figure.text(0.5, 0.012, said, ha="center", fontsize=6.5, color=CAPTION)
            for number in range(frames):
                for axes in grid:
                    axes.clear()
                    axes.set_axis_off()
                for axes, cloud in zip(grid, self.clouds, strict=False):
                    self._paint(axes, cloud, number, frames, looks[cloud.label].color)
                canvas.draw()
                image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
                images.append(image.quantize(COLORS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE))
                bar.update()
        content = io.BytesIO()
        images[0].save(
            content, "GIF", save_all=True, append_images=images[1:], duration=MILLISECONDS, loop=0,
            optimize=True,
        )  # fmt: skip
        return content.getvalue()

    def _paint(self, axes: Axes, cloud: Cloud, number: int, frames: int, hue: str) -> None:
        points = self.frame(cloud, number, frames)
        placed = number * FRAMES / frames >= STILL
        axes.set_xlim(-1.25, 1.25)
        axes.set_ylim(-1.3, 1.2)
        axes.set_aspect("equal")
        for axis in turned(np.eye(3), 2 * math.pi * number / frames):
            axes.plot([0, axis[0]], [0, axis[1]], color="#d8d8d8", linewidth=0.8, zorder=0)
        axes.plot(points[:, 0], points[:, 1], color=FAINT, linewidth=0.5, alpha=0.6, zorder=1)
        sizes = np.full(len(points), 26.0)
        if cloud.weights is not None and placed:
            sizes = 8 + 180 * cloud.weights
        colors = [_color(index, len(points)) for index in range(len(points))]
        axes.scatter(
            points[:, 0], points[:, 1], s=sizes * (1 + 0.25 * points[:, 2]), c=colors, linewidths=0.4,
            edgecolors="white", zorder=2,
        )  # fmt: skip
        for at, label in labels(points, self.words):
            axes.annotate(
                label, at, xytext=(3, 3), textcoords="offset points", fontsize=6.5, color=INK, zorder=3
            )
        state = "with position" if placed else "without position"
        axes.set_title(cloud.label, fontsize=9.5, color=hue, pad=4)
        axes.text(0, -1.08, state, ha="center", fontsize=8, color=INK)
        caption = textwrap.fill(cloud.caption, 62)
        axes.text(0, -1.14, caption, ha="center", va="top", fontsize=5.8, color=CAPTION)


def draw_tokens(specs: Sequence[Any], *, text: str, seed: int = 0) -> TokenFigure:
    """The tokens of a text under some encodings, as a picture that moves.

    Args:
        specs: encodings as a resolved recipe has them.
        text: of which each word is a token.
        seed: of the words' vectors.

    Raises:
        InputError: encodings that cannot be built so, or a text of too few or too many words.
    """
    return TokenFigure(*clouds(specs, text, seed))


def render(template: str, style: str, script: str, **values: Any) -> str:
    """A page of a template, that may run this script, apply this style, and fetch nothing."""
    from jinja2 import Environment

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    policy = (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["point"] = lambda point: ", ".join(f"{value:.2f}" for value in point)
    return environment.from_string(template).render(style=style, script=script, policy=policy, **values)


def turned(points: np.ndarray, angle: float) -> np.ndarray:
    """Points [T,3] as one sees them from a side: turned by an angle around the upright axis, and tilted."""
    x, y, z = points.T
    x, z = x * math.cos(angle) + z * math.sin(angle), z * math.cos(angle) - x * math.sin(angle)
    y, z = y * math.cos(TILT) - z * math.sin(TILT), z * math.cos(TILT) + y * math.sin(TILT)
    return np.stack([x, y, z], axis=1)


def labels(points: np.ndarray, words: Sequence[str]) -> list[tuple[tuple[float, float], str]]:
    """Where labels stand, and what they say: a word, of repeated ones with their positions from 0."""
    repeated = {word for word in words if list(words).count(word) > 1}
    groups: list[tuple[np.ndarray, list[int]]] = []
    for index, point in enumerate(points):
        for at, members in groups:
            if words[members[0]] == words[index] and math.dist(at[:2], point[:2]) < SAME:
                members.append(index)
                break
        else:
            groups.append((point, [index]))
    return [
        (
            (float(at[0]), float(at[1])),
            f"{words[own[0]]} {', '.join(map(str, own))}" if words[own[0]] in repeated else words[own[0]],
        )
        for at, own in groups
    ]


@cache
def _asset(name: str) -> str:
    return files("zoo.figures").joinpath(name).read_text(encoding="utf-8")


def _color(index: int, count: int) -> str:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return to_hex(colormaps["viridis"](0.92 * index / max(1, count - 1)))
