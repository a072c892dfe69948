"""BiPE against a loop over the segments, the encoding of their numbers, and a learned table."""

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.rotary.rope import RoPE
from zoo.encodings.stack import build_encoding

SEPARATORS, PLACES = [2, 5, 8, 21], 4


def segments(row):
    """The number of the segment and the place inside it, of each token of a row."""
    found, number, place = [], 0, 0
    for token in row:
        found.append((number, min(place, PLACES - 1)))
        number, place = (number + 1, 0) if token in SEPARATORS else (number, place + 1)
    return found


def bipe(size, of, **options):
    spec = {"name": "bipe", "of": of, "separators": SEPARATORS, "table_length": PLACES, **options}
    return build_encoding(spec, size).eval()


@pytest.mark.parametrize(("of", "stride"), [("rope", 1), ("alibi", 96)])
def test_places_are_added_and_the_other_encoding_sees_the_segments(of, stride, size_of, tokens, agree):
    encoding, row = bipe(size_of(), of, stride=stride), tokens(3, 40)
    numbers, places = torch.tensor([segments(one) for one in row.tolist()]).unbind(-1)
    assert numbers.max() > 3 and (places == PLACES - 1).any()
    pos, x = encoding.positions(torch.arange(40), 3, row), torch.randn(3, 40, 48)
    proof = {"encoding": "bipe", "against": f"a loop over the segments, and {of} at their numbers"}
    agree(encoding.embed(x, pos), x + encoding.table[places], **proof)
    ours, plain = (AttentionContext(at, at) for at in (pos, numbers * stride))
    other, (q, k) = build_encoding(of, size_of()), torch.randn(2, 3, 6, 40, 8)
    if of == "rope":
        for got, expected in zip(encoding.rotate(q, k, ours), other.rotate(q, k, plain), strict=True):
            agree(got, expected, **proof)
    else:
        agree(encoding.bias_table(ours, 6), other.bias_table(plain, 6), **proof)


def test_products_of_complex_numbers_turned_by_the_segments(size_of, tokens, agree):
    encoding, row = bipe(size_of(), "rope"), tokens(2, 30)
    pos, (q, k) = encoding.positions(torch.arange(30), 2, row), torch.randn(2, 2, 6, 30, 8)
    q_turned, k_turned = encoding.rotate(q, k, AttentionContext(pos, pos))
    number = torch.tensor([[one for one, _ in segments(line)] for line in row.tolist()]).double()
    frequency = 10000.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    phase = torch.exp(1j * (number[:, :, None] - number[:, None])[..., None] * frequency)
    a, b = (torch.complex(x[..., :4].double(), x[..., 4:].double()) for x in (q, k))
    expected = torch.einsum("bhtk,bhsk,btsk->bhts", a, b.conj(), phase).real.float()
    agree(
        q_turned @ k_turned.mT, expected,
        encoding="bipe", against="products of complex numbers turned by the segments, in float64",
    )  # fmt: skip


@pytest.mark.parametrize("of", ["rope", "shaw"])
def test_without_a_separator_it_is_a_learned_table_and_no_distance(of, model_of, tokens, agree):
    spec = {"name": "bipe", "of": of, "separators": [1000], "table_length": 17}
    model, plain = model_of(spec), model_of("learned")
    row = tokens(2, 17)
    if of == "shaw":
        assert model.encoding.slots[0][1].table is None
        return
    plain.encoding.slots[0][0].table.data = model.encoding.slots[0][0].table.data
    agree(model(row), plain(row), encoding="bipe", against="learned, without a separator")


def test_a_segment_continues_over_the_end_of_a_chunk_and_padding_is_none(size_of, tokens):
    encoding, row = bipe(size_of(), "rope"), tokens(2, 30)
    whole = encoding.positions(torch.arange(30), 2, row)
    parts = [encoding.positions(torch.arange(a, b), 2, row[:, :b]) for a, b in ((0, 7), (7, 8), (8, 30))]
    assert torch.equal(torch.cat(parts, 1), whole)
    padded = torch.cat((torch.full((2, 5), -1), row), 1)
    assert torch.equal(encoding.positions(torch.arange(35), 2, padded)[:, 5:], whole)


def test_rotated_keys_are_cached(size_of):
    assert RoPE(size_of()).rotation_is_final and bipe(size_of(), "rope").rotation_is_final
    scaled = {"name": "rope", "scaling": "dynamic_ntk", "factor": 2.0}
    assert not bipe(size_of(), scaled).rotation_is_final
