"""The cloud of tokens: one projection for all encodings, and points that are what the hooks give."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from zoo import registry
from zoo.encodings.base import Size, Span
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError
from zoo.figures import tokens
from zoo.figures.token_cloud import HEADS, WIDTH, clouds, comparable, hooked, vectors_of
from zoo.figures.tokens import FRAMES, MOVING, STILL, draw_tokens, labels, turned

TEXT = "the cat sat on the mat"
SPECS = [{"name": name} for name in ("sinusoidal", "rope", "pope", "alibi", "none")]


def stack_of(spec):
    return EncodingStack(spec, Size(WIDTH, HEADS, 1, 64, True, width_of_head=WIDTH)).eval()


def test_all_are_projected_alike_and_always_the_same():
    made, projection, words = clouds(SPECS, TEXT)
    vectors = vectors_of(words)
    assert words == TEXT.split() and torch.equal(vectors[0], vectors[4])
    np.testing.assert_allclose(projection.axes.T @ projection.axes, np.eye(3), atol=1e-9)
    for spec, cloud in zip(SPECS, made, strict=True):
        without, placed = comparable(*hooked(stack_of(spec), vectors))
        np.testing.assert_array_equal(cloud.without, projection(without))
        np.testing.assert_array_equal(cloud.placed, projection(placed))
        assert np.linalg.norm(cloud.placed, axis=1).max() <= 1 + 1e-9
    again, same, _ = clouds(SPECS, TEXT)
    np.testing.assert_array_equal(projection.axes, same.axes)
    np.testing.assert_array_equal(made[1].placed, again[1].placed)
    # Without position, the two "the" are one point; by these encodings they come apart.
    for cloud in made[:3]:
        assert np.allclose(cloud.without[0], cloud.without[4]) and cloud.moves
        assert not np.allclose(cloud.placed[0], cloud.placed[4], atol=1e-3)


def test_points_are_what_the_hooks_give():
    vectors, ids = vectors_of(TEXT.split()), torch.arange(6)
    (sinusoidal,) = stack_of("sinusoidal").view(0).encodings
    without, placed = hooked(stack_of("sinusoidal"), vectors)
    np.testing.assert_allclose(placed, sinusoidal.embed(vectors[None], ids)[0], rtol=1e-6)
    np.testing.assert_allclose(without, sinusoidal.embed(vectors[None], ids * 0)[0], rtol=1e-6)
    (rope,) = stack_of("rope").view(0).encodings
    without, placed = hooked(stack_of("rope"), vectors)
    np.testing.assert_allclose(without, vectors, rtol=1e-6)
    q, _ = rope.rotate(vectors[None, None], vectors[None, None], Span(ids, ids, consecutive=True))
    np.testing.assert_allclose(placed, q[0, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(placed, axis=1), vectors.norm(dim=1), rtol=1e-5)


def test_a_bias_moves_nothing_and_says_whom_the_last_token_would_look_at():
    (alibi, none), _, _ = clouds([{"name": "alibi"}, {"name": "none"}], TEXT)
    assert not alibi.moves and not none.moves and none.weights is None
    bias = stack_of("alibi").bias_table(6)[0, -1]
    np.testing.assert_allclose(alibi.weights, bias.softmax(-1), rtol=1e-5)
    assert "moves no vector" in alibi.caption and "causal mask alone" in none.caption


def test_frames_go_from_the_one_to_the_other():
    figure = draw_tokens(SPECS[:2], text=TEXT)
    for cloud in figure.clouds:
        np.testing.assert_allclose(figure.frame(cloud, 0), turned(cloud.without, 0))
        angle = 2 * np.pi * (STILL + MOVING) / FRAMES
        np.testing.assert_allclose(figure.frame(cloud, STILL + MOVING), turned(cloud.placed, angle))
        between = figure.frame(cloud, STILL + MOVING // 2)
        middle = turned((cloud.without + cloud.placed) / 2, 2 * np.pi * (STILL + MOVING // 2) / FRAMES)
        np.testing.assert_allclose(between, middle, atol=1e-9)
    # A turn changes no distance.
    np.testing.assert_allclose(
        np.linalg.norm(turned(cloud.placed, 1.0), axis=1), np.linalg.norm(cloud.placed, axis=1)
    )


def test_repeated_words_have_their_positions_and_one_label_where_they_are_one_point():
    points = np.array([[0, 0, 0], [0.5, 0, 0], [0, 0.01, 0], [0.9, 0, 0]])
    assert [text for _, text in labels(points, ["a", "b", "a", "a"])] == ["a 0, 2", "b", "a 3"]


def test_every_encoding_has_a_cloud(spec_of):
    names = registry.encodings.names()
    made, _, _ = clouds([spec_of(name) for name in names], TEXT)
    for name, cloud in zip(names, made, strict=True):
        assert np.isfinite(cloud.placed).all() and cloud.caption, name
        if registry.encodings.describe(name).decoder:
            view = stack_of(spec_of(name)).view(0)
            added = any(encoding.uses("embed") for encoding in view.encodings)
            assert not cloud.moves or added or view.rotating, name
            assert ("is added to each token" in cloud.caption) == (cloud.moves and added), name
            assert ("turned by its position" in cloud.caption) == (cloud.moves and bool(view.rotating)), name
            assert (cloud.weights is not None) == bool(view.biased), name


def test_the_moving_picture_is_small_and_whole(tmp_path, monkeypatch):
    figure = draw_tokens(SPECS[1:4], text=TEXT)
    figure.save(tmp_path / "x.gif", frames=5)
    with Image.open(tmp_path / "x.gif") as image:
        assert image.n_frames == 5 and image.info["loop"] == 0
        wide = image.size
    assert (tmp_path / "x.gif").stat().st_size < 300_000
    # One that is too large is drawn smaller.
    monkeypatch.setattr(tokens, "LARGEST", (tmp_path / "x.gif").stat().st_size - 1)
    with Image.open(io.BytesIO(figure._gif(5))) as image:
        assert image.size[0] < wide[0]
    with pytest.raises(InputError, match=r"ends in \.gif or \.html"):
        figure.save(tmp_path / "x.png")


def test_texts_of_no_or_of_many_words_are_refused():
    for text in ("", "one", "a " * 25):
        with pytest.raises(InputError, match="2 to 24 words"):
            draw_tokens(SPECS[:1], text=text)
