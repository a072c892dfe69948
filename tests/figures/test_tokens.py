"""The cloud of tokens: one projection for all encodings, and points from the hooks."""

import numpy as np
import pytest
import torch

from zoo.encodings.base import AttentionContext, Size
from zoo.encodings.stack import EncodingStack
from zoo.errors import InputError
from zoo.figures.tokens import HEADS, WIDTH, clouds, figure, hooked, vectors_of

TEXT = "the cat sat on the mat"
SPECS = [{"name": name} for name in ("sinusoidal", "rope", "pope", "alibi", "none")]


def stack_of(spec):
    return EncodingStack(spec, Size(WIDTH, HEADS, 1, 64, True, width_of_head=WIDTH)).eval()


def test_all_encodings_have_one_projection():
    made, words = clouds(SPECS, TEXT)
    assert words == TEXT.split() and torch.equal(vectors_of(words)[0], vectors_of(words)[4])
    again, _ = clouds(SPECS, TEXT)
    # Vectors without position are those of the words, for all encodings of the same width.
    for cloud, same in zip(made, again, strict=True):
        np.testing.assert_array_equal(cloud.placed, same.placed)
        assert np.linalg.norm(cloud.placed, axis=1).max() <= 1 + 1e-9
    np.testing.assert_allclose(made[1].without, made[3].without, atol=1e-6)
    np.testing.assert_allclose(made[3].without, made[4].placed, atol=1e-6)
    # Without position, the two "the" are one point; by these encodings they come apart.
    for cloud in made[:3]:
        assert np.allclose(cloud.without[0], cloud.without[4])
        assert not np.allclose(cloud.placed[0], cloud.placed[4], atol=1e-3)


def test_points_are_the_output_of_the_hooks():
    vectors, ids = vectors_of(TEXT.split()), torch.arange(6)
    (sinusoidal,) = stack_of("sinusoidal").layer(0).encodings
    placed, without = (hooked(stack_of("sinusoidal"), vectors, one) for one in (True, False))
    np.testing.assert_allclose(placed, sinusoidal.embed(vectors[None], ids)[0], rtol=1e-6)
    np.testing.assert_allclose(without, sinusoidal.embed(vectors[None], ids * 0)[0], rtol=1e-6)
    (rope,) = stack_of("rope").layer(0).encodings
    placed, without = (hooked(stack_of("rope"), vectors, one) for one in (True, False))
    np.testing.assert_allclose(without, vectors, rtol=1e-6)
    q, _ = rope.rotate(vectors[None, None], vectors[None, None], AttentionContext(ids, ids, consecutive=True))
    np.testing.assert_allclose(placed, q[0, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(placed, axis=1), vectors.norm(dim=1), rtol=1e-5)


def test_a_bias_moves_nothing():
    (alibi, none), _ = clouds([{"name": "alibi"}, {"name": "none"}], TEXT)
    for cloud in (alibi, none):
        np.testing.assert_array_equal(cloud.without, cloud.placed)
    assert "moves no vector" in alibi.caption and "causal mask alone" in none.caption


def test_the_frames_move_from_without_position_to_with_it():
    (cloud,), words = clouds(SPECS[1:2], TEXT)
    made = figure(cloud, words)
    ends = [np.stack([one.data[0].x, one.data[0].y, one.data[0].z], -1) for one in made.frames]
    np.testing.assert_allclose(ends[0], cloud.without)
    np.testing.assert_allclose(ends[-1], cloud.placed)
    assert list(made.data[0].text) == ["the 0", "cat", "sat", "on", "the 4", "mat"]


def test_texts_of_no_or_of_many_words_are_rejected():
    for text in ("", "one", "a " * 25):
        with pytest.raises(InputError, match="2 to 24 words"):
            clouds(SPECS[:1], text)
