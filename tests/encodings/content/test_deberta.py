"""DeBERTa's buckets and scores against those of `transformers`."""

import math

import pytest
import torch
import torch.nn.functional as F

from zoo.encodings.base import Span
from zoo.encodings.content.deberta import DeBERTa, log_buckets
from zoo.encodings.stack import View
from zoo.errors import InputError
from zoo.models.kernels import attend
from zoo.models.scores import Scores

B, H, T, D = 2, 6, 70, 8
E = H * D


@pytest.fixture
def published():
    return pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")


def lively(encoding):
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return encoding.requires_grad_(False)


@pytest.mark.parametrize(
    ("buckets", "far"), [(256, 512), (32, 128), (4, 9), (64, 1000), (16, 40), (256, 1024), (6, 5)]
)
def test_buckets_are_those_of_deberta(buckets, far, published):
    distance = torch.arange(far + 1)
    expected = published.make_log_bucket_position(distance, buckets, far).long()
    assert torch.equal(log_buckets(distance, buckets), expected)
    assert expected[: buckets // 2 + 1].tolist() == list(range(buckets // 2 + 1))
    # All that lies beyond is one row of the table, as is their bucket once it is clipped to the table.
    beyond = published.make_log_bucket_position(torch.arange(far, 5 * far), buckets, far)
    assert (beyond >= buckets).all() and expected[far - 1] == buckets - 1


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
@pytest.mark.parametrize("terms", ["both", "c2p", "p2c"])
@pytest.mark.parametrize(("buckets", "far"), [(8, 20), (256, 512), (None, 11)])
def test_attention_is_that_of_deberta(causal, terms, buckets, far, size_of, published, agree):
    options = {"position_buckets": buckets, "max_distance": far, "terms": terms}
    ours = lively(DeBERTa(size_of(causal=causal), **options))
    theirs = attention(published, ours, terms, buckets, far)
    # Theirs has rows for both directions: those of a decoder are the last, for what lies back.
    table = torch.cat((torch.randn(ours.one_way, E), ours.table)) if causal else ours.table
    x, pos = torch.randn(B, T, E), torch.arange(T)
    span = Span(pos, pos, causal=causal)
    q, k, v = (
        projection(x).unflatten(-1, (H, D)).transpose(1, 2)
        for projection in (theirs.query_proj, theirs.key_proj, theirs.value_proj)
    )
    turned = ours.rotate(q, k, span)
    got = attend(*turned, v, Scores(View([ours]), [span], content=(q, k)), D**-0.5)
    rows = F.layer_norm(table, (E,), eps=1e-7)
    expected = theirs(x, span.allowed().expand(B, 1, -1, -1), rel_embeddings=rows)[0]
    against = "transformers DebertaV2 DisentangledSelfAttention"
    agree(got.transpose(1, 2).flatten(2), expected, encoding="deberta", against=against)


def attention(published, ours, terms, buckets, far):
    """The published layer with our projections of the table."""
    config = published.DebertaV2Config(
        hidden_size=E,
        num_attention_heads=H,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"] if terms == "both" else [terms],
        position_buckets=buckets or -1,
        max_relative_positions=far,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs = published.DisentangledSelfAttention(config).requires_grad_(False)
    for projection in (theirs.query_proj, theirs.key_proj):
        torch.nn.init.normal_(projection.weight, std=0.2)
    for name, weight in (("pos_key_proj", ours.keys), ("pos_query_proj", ours.queries)):
        if weight is not None:
            getattr(theirs, name).weight.copy_(weight)
            getattr(theirs, name).bias.zero_()
    return theirs


@pytest.mark.parametrize("causal", [True, False], ids=["decoder", "encoder"])
def test_score_is_two_products_with_rows_of_the_table(causal, size_of, agree):
    encoding = lively(DeBERTa(size_of(causal=causal), position_buckets=4, max_distance=6))
    length, pos = 9, torch.arange(9)
    q, k = torch.randn(B, H, length, D), torch.randn(B, H, length, D)
    # Counted by hand: 0, 1, 2, then ceil(log(d/2) / log(5/2)) + 2, from 6 on the last.
    bucket = {0: 0, 1: 1, 2: 2, 3: 3, 4: 3, 5: 3, 6: 4, 7: 4, 8: 4}
    rows = F.layer_norm(encoding.table, (E,), eps=1e-7)
    expected = torch.zeros(B, H, length, length)
    for h in range(H):
        part = slice(h * D, (h + 1) * D)
        for i in range(length):
            for j in range(i + 1 if causal else length):
                step = bucket[abs(i - j)]
                row = min(step, 3) if causal else min(max(4 + (step if i >= j else -step), 0), 7)
                key, query = encoding.keys[part] @ rows[row], encoding.queries[part] @ rows[row]
                expected[:, h, i, j] = (q[:, h, i] @ key + k[:, h, j] @ query) / math.sqrt(3 * D)
    got = encoding.score(q, k, Span(pos, pos, causal=causal))
    agree(got.tril() if causal else got, expected, encoding="deberta", against="formula: by a loop")


def test_a_few_queries_see_what_all_see(size_of):
    for causal in (True, False):
        encoding, pos = lively(DeBERTa(size_of(causal=causal))), torch.arange(20)
        q, span = torch.randn(B, H, 20, D), Span(pos, pos, causal=causal)
        part = span.queries(5, 9)
        rows = encoding.score(q[:, :, 5:9], q[:, :, : part.num_keys], part)
        whole = encoding.score(q, q, span)[:, :, 5:9, : part.num_keys]
        torch.testing.assert_close(rows, whole, rtol=0, atol=1e-5)


def test_it_stands_beside_biases_and_not_beside_rotations(model_of, tokens):
    assert model_of(["deberta", "alibi"])(tokens(1, 5)).isfinite().all()
    with pytest.raises(InputError, match="'rope' and 'deberta' cannot be combined"):
        model_of(["rope", "deberta"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position_buckets": 2}, "position_buckets must be even and at least 4, not 2"),
        ({"position_buckets": 7}, "position_buckets must be even and at least 4, not 7"),
        ({"max_distance": 129}, "max_distance must be at least 130 with these buckets, not 129"),
        ({"position_buckets": None, "max_distance": 0}, "max_distance must be at least 1"),
    ],
)
def test_options_that_cannot_be(options, message, model_of):
    with pytest.raises(InputError, match=message):
        model_of({"name": "deberta", **options})
