"""DeBERTa's buckets and scores against those of `transformers`."""

import pytest
import torch
import torch.nn.functional as F

from zoo.encodings.content.deberta import DeBERTa, log_buckets
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

B, H, T, D = 2, 6, 70, 8
E = H * D


@pytest.fixture
def published():
    return pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")


def with_large_weights(encoding):
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return encoding.requires_grad_(False)


def test_buckets_are_those_of_deberta(published):
    for buckets, far in ((256, 512), (32, 128), (4, 9), (64, 1000), (16, 40), (256, 1024), (6, 5)):
        distance = torch.arange(far)
        expected = published.make_log_bucket_position(distance, buckets, far).long()
        assert torch.equal(log_buckets(distance, buckets), expected)
        assert expected[: buckets // 2 + 1].tolist() == list(range(buckets // 2 + 1))
        assert expected[-1] == buckets - 1


@pytest.mark.parametrize(("buckets", "far", "terms", "causal"), [
    (8, 20, "both", True), (8, 20, "c2p", False), (8, T, "both", False), (8, T, "p2c", True),
    (256, 512, "both", True), (256, 512, "p2c", False), (None, 11, "c2p", True), (None, 11, "both", False),
])  # fmt: skip
def test_attention_is_that_of_deberta(buckets, far, terms, causal, size_of, published, agree):
    """That of `transformers`; with buckets, and beyond the farthest, at the distances of Microsoft's code."""
    options = {"position_buckets": buckets, "max_distance": far, "terms": terms}
    ours = with_large_weights(DeBERTa(size_of(causal=causal), **options))
    theirs = attention(published, ours, terms, buckets, far)
    # Theirs has rows for both directions: those of a decoder are the last, for earlier keys.
    table = torch.cat((torch.randn(ours.one_way, E), ours.table)) if causal else ours.table
    x, pos = torch.randn(B, T, E), torch.arange(T)
    context = AttentionContext(pos, pos, causal=causal)
    q, k, v = (
        projection(x).unflatten(-1, (H, D)).transpose(1, 2)
        for projection in (theirs.query_proj, theirs.key_proj, theirs.value_proj)
    )
    turned = ours.rotate(q, k, context)
    got = attend(*turned, v, ScoreTerms(LayerEncodings([ours]), [context], content=(q, k)), D**-0.5)
    rows = F.layer_norm(table, (E,), eps=1e-7)
    distance, against = None, "transformers DebertaV2 DisentangledSelfAttention"
    if buckets is not None and far < T:
        # Microsoft's make_log_bucket_position clamps first; the port does not.
        distance = (pos[:, None] - pos).clamp(1 - far, far - 1)
        distance = published.make_log_bucket_position(distance, buckets, far)[None]
        against += ", distances clamped as in Microsoft's"
    expected = theirs(x, context.allowed().expand(B, 1, -1, -1), relative_pos=distance, rel_embeddings=rows)[
        0
    ]
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


@pytest.mark.parametrize(("causal", "buckets"), [(True, 256), (False, 32)], ids=["decoder", "encoder"])
def test_every_row_that_is_read_is_trained_at_the_trained_length(causal, buckets, size_of):
    """A row without a gradient at 512 tokens keeps its random start, and would be noise beyond."""
    encoding = DeBERTa(size_of(d_model=8, num_heads=1, length=512, causal=causal), position_buckets=buckets)

    def read(length):
        pos, (q, k) = torch.arange(length), torch.randn(2, 1, 1, length, 8)
        context = AttentionContext(pos, pos, causal=causal)
        seen = encoding.score(q, k, context).masked_fill(~context.allowed(), 0.0).square().sum()
        return torch.autograd.grad(seen, encoding.table)[0].any(-1)

    trained = read(512)
    assert trained.sum() >= len(trained) - 1
    for length in (513, 1024, 2048):
        assert not (read(length) & ~trained).any(), f"at {length} tokens"
