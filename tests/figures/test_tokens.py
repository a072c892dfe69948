"""The cloud of tokens: one projection for all encodings, and points from the hooks."""

import numpy as np
import pytest
import torch

from zoo.encodings.base import AttentionContext, Size
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError
from zoo.figures.tokens import HEADS, WIDTH, clouds, comparable, figure, hooked, vectors_of

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


def test_points_are_the_output_of_the_hooks():
    vectors, ids = vectors_of(TEXT.split()), torch.arange(6)
    (sinusoidal,) = stack_of("sinusoidal").layer(0).encodings
    without, placed = hooked(stack_of("sinusoidal"), vectors)
    np.testing.assert_allclose(placed, sinusoidal.embed(vectors[None], ids)[0], rtol=1e-6)
    np.testing.assert_allclose(without, sinusoidal.embed(vectors[None], ids * 0)[0], rtol=1e-6)
    (rope,) = stack_of("rope").layer(0).encodings
    without, placed = hooked(stack_of("rope"), vectors)
    np.testing.assert_allclose(without, vectors, rtol=1e-6)
    q, _ = rope.rotate(vectors[None, None], vectors[None, None], AttentionContext(ids, ids, consecutive=True))
    np.testing.assert_allclose(placed, q[0, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(placed, axis=1), vectors.norm(dim=1), rtol=1e-5)


def test_a_bias_moves_nothing_and_gives_the_weights_of_the_last_token():
    (alibi, none), _, _ = clouds([{"name": "alibi"}, {"name": "none"}], TEXT)
    assert not alibi.moves and not none.moves and none.weights is None
    bias = stack_of("alibi").bias_table(6)[0, -1]
    np.testing.assert_allclose(alibi.weights, bias.softmax(-1), rtol=1e-5)
    assert "moves no vector" in alibi.caption and "causal mask alone" in none.caption


def test_the_frames_move_from_without_position_to_with_it():
    (cloud,), _, words = clouds(SPECS[1:2], TEXT)
    made = figure(cloud, words)
    ends = [np.stack([one.data[0].x, one.data[0].y, one.data[0].z], -1) for one in made.frames]
    np.testing.assert_allclose(ends[0], cloud.without)
    np.testing.assert_allclose(ends[-1], cloud.placed)
    assert list(made.data[0].text) == ["the 0", "cat", "sat", "on", "the 4", "mat"]


def test_texts_of_no_or_of_many_words_are_rejected():
    for text in ("", "one", "a " * 25):
        with pytest.raises(InputError, match="2 to 24 words"):
            clouds(SPECS[:1], text)
