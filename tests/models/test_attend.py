"""`attend` is softmax attention, forward and backward, whichever way it is computed."""

import math
import shutil

import pytest
import torch
from layouts import MASKS, B, D, H, gradients, heads, keys_seen, spanned

import zoo
from zoo.contract.subject import HEADS
from zoo.encodings.base import Encoding, Span
from zoo.encodings.stack import View, build_encoding
from zoo.models import blocked_attention, kernels
from zoo.models.kernels import attend
from zoo.models.scores import Scores


def naive(q, k, v, encoding, span):
    """One query at a time, by the definition. A query that sees nothing gets zeros."""
    rows = []
    for b in range(B):
        for h in range(H):
            for i in range(span.num_queries):
                seen = keys_seen(span, b, i)
                if not seen:
                    rows.append(torch.zeros_like(v[0, 0, 0]))
                    continue
                logits = torch.stack([q[b, h, i] @ k[b, h, j] / math.sqrt(D) for j in seen])
                if encoding is not None:
                    places = span.k_pos.expand(B, -1)[b]
                    logits = logits + torch.stack(
                        [encoding.bias(torch.tensor(h), places[span.first + i], places[j]) for j in seen]
                    )
                weights = (logits - logits.max()).exp()
                rows.append(weights @ torch.stack([v[b, h, j] for j in seen]) / weights.sum())
    return torch.stack(rows).view(B, H, span.num_queries, -1)


def encoding_of(bias, size_of, causal):
    encoding = build_encoding(bias, size_of(d_model=H * D, num_heads=H, causal=causal)).double()
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    return encoding


BIASES = {
    "no bias": "none",
    "fixed": "alibi",
    "learned": "t5",
    "closed to one side": {"name": "alibi", "form": "one_sided"},
}


@pytest.mark.parametrize("kernel", ["auto", "sdpa", "reference"])
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("mask", MASKS)
def test_outputs_and_gradients_are_those_of_the_definition(mask, bias, kernel, size_of):
    span = spanned(**MASKS[mask])
    encoding = encoding_of(BIASES[bias], size_of, span.causal)
    q, k, v = heads(span.num_queries, span.num_keys)
    inputs = [q, k, v, *encoding.parameters()]
    got = attend(q, k, v, Scores(View([encoding]), [span]), D**-0.5, kernel)
    expected = naive(q, k, v, encoding if encoding.uses("bias") else None, span)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    for one, other in zip(gradients(got, inputs), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("mask", MASKS)
def test_evaluation_in_blocks_gives_the_same(mask, bias, size_of, monkeypatch):
    span = spanned(**MASKS[mask])
    encoding = encoding_of(BIASES[bias], size_of, span.causal)
    q, k, v = heads(span.num_queries, span.num_keys)
    monkeypatch.setattr(kernels, "FEWEST_ROWS", 2)
    monkeypatch.setattr(kernels, "BLOCKS_BY_DISTANCE", span.num_queries)
    with torch.no_grad():
        got = attend(q, k, v, Scores(View([encoding]), [span]), D**-0.5)
        expected = naive(q, k, v, encoding if encoding.uses("bias") else None, span)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("spec", ["cope", {"name": "dape", "of": "t5"}, "shaw", "none"], ids=str)
@pytest.mark.parametrize("mask", [name for name in MASKS if MASKS[name].get("causal", True)])
def test_training_on_kept_tables_in_blocks_gives_the_same(mask, spec, size_of, monkeypatch):
    """Output and gradients of queries taken a few at a time, where a hook asks for the table."""
    span = spanned(**MASKS[mask])
    encoding = encoding_of(spec, size_of, causal=True)
    q, k, v = heads(span.num_queries, span.num_keys)
    v = v[..., :D]
    results = []
    for rows in (1000, 2):
        monkeypatch.setattr(kernels, "FEWEST_TRAINING_ROWS", rows)
        out = attend(q, k, v, Scores(View([encoding]), [span]), D**-0.5, "reference")
        results.append((out, *gradients(out, [q, k, v, *encoding.parameters()])))
    for whole, in_blocks in zip(*results, strict=True):
        torch.testing.assert_close(whole, in_blocks, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", ["sdpa", "reference"])
@pytest.mark.parametrize("bias", BIASES)
def test_who_sees_nothing_gets_zeros_and_finite_gradients(bias, kernel, size_of):
    span = spanned(padded=9)
    encoding = encoding_of(BIASES[bias], size_of, causal=True)
    q, k, v = heads(9, 9, torch.float32)
    out = attend(q, k, v, Scores(View([encoding]), [span]), D**-0.5, kernel)
    assert not out[1].any()
    assert out[0].any()
    of_q, *others = gradients(out, [q, k, v, *encoding.parameters()])
    assert of_q[0].any() and not of_q[1].any()
    assert all(gradient.isfinite().all() for gradient in (of_q, *others))


@pytest.mark.parametrize("kernel", ["sdpa", "reference"])
def test_so_does_one_whom_a_bias_closes_everything(kernel, size_of):
    class Closed(Encoding):
        def bias(self, head, q, k):
            return torch.where(q + 0 * k == 3, -torch.inf, 0.0)

    encoding = Closed(size_of(d_model=H * D, num_heads=H))
    span, (q, k, v) = spanned(), heads(9, 9)
    out = attend(q, k, v, Scores(View([encoding]), [span]), D**-0.5, kernel)
    assert not out[:, :, 3].any()
    of_q, *others = gradients(out, [q, k, v])
    assert of_q[:, :, 4:].any() and not of_q[:, :, 3].any()
    assert all(gradient.isfinite().all() for gradient in (of_q, *others))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["none", "alibi", "t5", "shaw"])
def test_long_sequences_go_in_blocks(name, size_of, monkeypatch):
    """4096 tokens: no table of queries by keys is made whole, and the output is the same."""
    length = 4096
    encoding = build_encoding(name, size_of(d_model=8, num_heads=1, length=length))
    q, k, v = torch.randn(3, 1, 1, length, 8)
    span = Span(torch.arange(length), torch.arange(length), window=3000, consecutive=True)
    sizes = []

    def watched(path):
        def run(q, k, *rest):
            sizes.append(q.shape[2] * k.shape[2])
            return path(q, k, *rest)

        return run

    for path in ("_sdpa", "_reference", "_by_distance"):
        monkeypatch.setattr(kernels, path, watched(getattr(kernels, path)))
    with torch.no_grad():
        monkeypatch.setattr(kernels, "BLOCK_ELEMENTS", length**2)
        monkeypatch.setattr(kernels, "FEWEST_ROWS", length)
        whole = attend(q, k, v, Scores(View([encoding]), [span]), 8**-0.5)
        assert sizes == [length**2]
        monkeypatch.setattr(kernels, "BLOCK_ELEMENTS", 2**20)
        monkeypatch.setattr(kernels, "FEWEST_ROWS", 256)
        blocked = attend(q, k, v, Scores(View([encoding]), [span]), 8**-0.5)
    assert len(sizes) > 2 and max(sizes[1:]) <= 2**20
    torch.testing.assert_close(blocked, whole, rtol=0, atol=1e-5)


@pytest.mark.launch
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.skipif(shutil.which("c++") is None, reason="FlexAttention on a CPU needs a C++ compiler")
def test_flex_gives_the_same(size_of):
    span = spanned(first=2, padded=9, window=4)
    encoding = encoding_of("t5", size_of, causal=True).float()
    q, k, v = torch.randn(3, B, H, 9, D)
    q = q[:, :, 2:]
    with torch.no_grad():
        got = attend(q, k, v, Scores(View([encoding]), [span]), D**-0.5, "flex")
        expected = attend(q, k, v, Scores(View([encoding]), [span]), D**-0.5, "reference")
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


# Who chooses what.


@pytest.mark.parametrize(
    ("spec", "kernel", "message"),
    [
        ({"name": "shaw", "values": False}, "flex", "kernel 'flex' takes pointwise biases only"),
        ("shaw", "flex", "kernel 'flex' does not return attention weights"),
        ("shaw", "sdpa", "kernel 'sdpa' does not return attention weights"),
        ("counted", "sdpa", "kernel 'sdpa' does not return attention weights"),
        ("forget_gate", "flex", "kernel 'flex' takes pointwise biases only"),
    ],
)
def test_a_kernel_refuses_what_it_cannot_compute(spec, kernel, message, plugins, model_of, tokens):
    with pytest.raises(ValueError, match=message):
        model_of(spec, kernel=kernel)(tokens(1, 8))


def test_no_table_is_made_where_a_kernel_can_do_without(model_of, tokens, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("a table of queries by keys")

    monkeypatch.setattr(Scores, "additive_mask", fail)
    monkeypatch.setattr(kernels, "_reference", fail)
    for name in ("none", "sinusoidal", "learned", "rope"):
        for kind in ("decoder", "encoder"):
            model_of(name, kind)(tokens(1, 8))
    for name in ("alibi", "sandwich", "kerple", "dpb"):
        model_of(name)(tokens(1, 8))
        with torch.no_grad():
            model_of(name)(tokens(1, 8))
    with pytest.raises(AssertionError, match="a table"):
        model_of("fire")(tokens(1, 8))


@pytest.mark.parametrize("name", ["none", "rope", "pope", "alibi", "sandwich", "t5", "fox", "cable"])
def test_a_bias_costs_no_table_of_weights(name, model_of, tokens, monkeypatch):
    """On a CPU nothing of size T S is kept for each sequence that is longer than those kept by intent."""
    monkeypatch.setattr(blocked_attention, "KEPT_LENGTH", 0)
    sizes, batch, length = [], 4, 64
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: sizes.append(x.untyped_storage().nbytes()), lambda x: x
    ):
        model_of(name, length=length)(tokens(batch, length))
    assert max(sizes) < 4 * batch * HEADS * length**2


def test_layers_with_a_bias_of_their_own_do_not_share_it(forgetful_registry, model_of, tokens):
    @zoo.register("own_bias")
    class OwnBias(Encoding):
        """Another slope in each layer."""

        per_layer = True

        def bias(self, head, q, k):
            return -0.5 * self.size.layer * (q - k).abs().float() * (head + 1)

    outputs = [model_of("own_bias", kernel=kernel)(tokens(2, 12)) for kernel in ("sdpa", "reference")]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)


def test_layers_that_share_an_encoding_share_its_table(model_of, tokens, monkeypatch):
    calls = []
    for name, made in (("alibi", 1), ("t5", 1)):
        model = model_of(name, num_layers=4)
        encoding = model.encoding.view(0).encodings[0]
        bias = encoding.bias
        monkeypatch.setattr(encoding, "bias", lambda *at, bias=bias: calls.append(1) or bias(*at))
        model(tokens(1, 8))
        assert len(calls) == made
        calls.clear()
