"""`attend` is softmax attention, forward and backward, whichever way it is computed."""

import math
import shutil

import pytest
import torch
from layouts import MASKS, B, D, H, context_with, gradients, heads, softmax, visible

import zoo
from zoo.contract.subject import HEADS
from zoo.encodings.base import Encoding
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.models.kernels import blocked_attention, cpu_attention
from zoo.models.plans import choose, flex, table
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms


def same(actual, expected, what):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10, msg=lambda text: f"{what}: {text}")


def plain(q, k, v, encoding, context):
    """Attention by its definition. The output of a query that sees no key is zero."""
    logits = q @ k.mT / math.sqrt(D)
    if encoding.uses("bias"):
        places = context.k_pos.expand(B, -1)[:, None]
        heads = torch.arange(H)[:, None, None]
        logits = logits + encoding.bias(
            heads, places[..., context.query_offset :, None], places[..., None, :]
        )
    return softmax(logits, visible(context)) @ v


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


@pytest.mark.parametrize("mask", MASKS)
def test_outputs_and_gradients_are_those_of_the_definition(mask, size_of, monkeypatch):
    """With either kernel in training, and in blocks of queries in evaluation."""
    monkeypatch.setattr(choose, "BLOCK_ROWS", 2)
    for bias, spec in BIASES.items():
        # A context of its own: the shared biases are kept by the identity of a living encoding.
        context = context_with(**MASKS[mask])
        encoding = encoding_of(spec, size_of, context.causal)
        q, k, v = heads(context.num_queries, context.num_keys)
        inputs = [q, k, v, *encoding.parameters()]
        expected = plain(q, k, v, encoding, context)
        exact = gradients(expected, inputs)
        for kernel in ("sdpa", "reference"):
            got = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), D**-0.5, kernel)
            for one, other in zip((got, *gradients(got, inputs)), (expected, *exact), strict=True):
                same(one, other, f"{bias}, {kernel}")
        with torch.no_grad():
            got = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), D**-0.5)
        same(got, expected.detach(), f"{bias}, evaluation")


@pytest.mark.parametrize("spec", ["cope", {"name": "dape", "of": "t5"}, "shaw", "none"], ids=str)
def test_training_on_kept_tables_in_blocks_gives_the_same(spec, size_of, monkeypatch):
    """Output and gradients of queries taken a few at a time, where a hook asks for the table."""
    encoding = encoding_of(spec, size_of, causal=True)
    for mask in (name for name in MASKS if MASKS[name].get("causal", True)):
        context = context_with(**MASKS[mask])
        q, k, v = heads(context.num_queries, context.num_keys)
        v = v[..., :D]
        results = []
        for rows in (1000, 2):
            monkeypatch.setattr(choose, "BLOCK_ROWS", rows)
            out = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), D**-0.5, "reference")
            results.append((out, *gradients(out, [q, k, v, *encoding.parameters()])))
        for whole, in_blocks in zip(*results, strict=True):
            same(whole, in_blocks, mask)


@pytest.mark.parametrize("kernel", ["sdpa", "reference"])
def test_a_query_that_sees_no_key_gets_zeros_and_finite_gradients(kernel, size_of):
    """For padding, and for a bias that excludes every key of a query."""
    for bias, spec in BIASES.items():
        encoding = encoding_of(spec, size_of, causal=True)
        q, k, v = heads(9, 9, torch.float32)
        out = attend(
            q, k, v, ScoreTerms(LayerEncodings([encoding]), [context_with(padded=9)]), D**-0.5, kernel
        )
        assert not out[1].any() and out[0].any(), bias
        of_q, *others = gradients(out, [q, k, v, *encoding.parameters()])
        assert of_q[0].any() and not of_q[1].any(), bias
        assert all(gradient.isfinite().all() for gradient in (of_q, *others)), bias

    class Closed(Encoding):
        def bias(self, head, q, k):
            return torch.where(q + 0 * k == 3, -torch.inf, 0.0)

    encoding = Closed(size_of(d_model=H * D, num_heads=H))
    q, k, v = heads(9, 9)
    out = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context_with()]), D**-0.5, kernel)
    assert not out[:, :, 3].any()
    of_q, *others = gradients(out, [q, k, v])
    assert of_q[:, :, 4:].any() and not of_q[:, :, 3].any()
    assert all(gradient.isfinite().all() for gradient in (of_q, *others))


@pytest.mark.parametrize("name", ["t5", "fire", "shaw"])
def test_long_sequences_go_in_blocks(name, size_of, monkeypatch):
    """No table of queries by keys is computed whole, and the output is the same."""
    length = 1025
    encoding = build_encoding(name, size_of(d_model=8, num_heads=1, length=length))
    q, k, v = torch.randn(3, 1, 1, length, 8)
    context = AttentionContext(torch.arange(length), torch.arange(length), window=700, consecutive=True)
    sizes = []

    def watched(path):
        def run(plan, q, k, *rest):
            sizes.append(q.shape[2] * k.shape[2])
            return path(plan, q, k, *rest)

        return run

    for plan in (choose.Table, choose.Reference, choose.Line):
        monkeypatch.setattr(plan, "attend", watched(plan.attend))
    with torch.no_grad():
        monkeypatch.setattr(choose, "BLOCK_ELEMENTS", length**2)
        monkeypatch.setattr(choose, "BLOCK_ROWS", length)
        whole = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), 8**-0.5)
        assert sizes == [length**2]
        monkeypatch.setattr(choose, "BLOCK_ELEMENTS", 2**16)
        monkeypatch.setattr(choose, "BLOCK_ROWS", 32)
        blocked = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), 8**-0.5)
    assert len(sizes) > 2 and max(sizes[1:]) <= 65 * length
    torch.testing.assert_close(blocked, whole, rtol=0, atol=1e-5)


@pytest.mark.launch
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.skipif(shutil.which("c++") is None, reason="FlexAttention on a CPU needs a C++ compiler")
def test_flex_gives_the_same(size_of):
    context = context_with(query_offset=2, padded=9, window=4)
    encoding = encoding_of("t5", size_of, causal=True).float()
    q, k, v = torch.randn(3, B, H, 9, D)
    q = q[:, :, 2:]
    with torch.no_grad():
        got = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), D**-0.5, "flex")
        expected = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), D**-0.5, "reference")
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("spec", ["alibi", "t5", "fire", ["alibi", "kerple"]], ids=str)
def test_flex_gets_the_bias_of_each_pair(spec, mask, size_of):
    """FlexAttention trains on a GPU alone; what it calls for each pair is plain arithmetic."""
    context = context_with(**MASKS[mask])
    if "fire" in spec and not context.causal:
        pytest.skip("for decoders")
    names = spec if isinstance(spec, list) else [spec]
    encodings = [encoding_of(name, size_of, context.causal).float() for name in names]
    scores = ScoreTerms(LayerEncodings(encodings), [context] * len(names))
    seen = visible(context).expand(B, H, -1, -1)
    places = [torch.arange(n).view(n, *[1] * back) for back, n in zip((3, 2, 1, 0), seen.shape, strict=True)]
    with torch.no_grad():
        table = flex.bias_of_pairs(scores, H)
        for given in (table, None)[: 1 + flex.is_fused(scores)]:
            modify, _ = flex.pointwise(scores, given)
            biases = modify(torch.zeros(seen.shape), *places)
            torch.testing.assert_close(biases[seen], table.expand(seen.shape)[seen], rtol=1e-4, atol=1e-5)


# The choice of the kernel.


def test_a_kernel_refuses_what_it_cannot_compute(plugins, model_of, tokens):
    for spec, kernel, message in (
        ({"name": "shaw", "values": False}, "flex", "kernel 'flex' takes biases only"),
        ("shaw", "flex", "kernel 'flex' does not return attention weights"),
        ("shaw", "sdpa", "kernel 'sdpa' does not return attention weights"),
        ("clipped_softmax", "flex", "kernel 'flex' computes a softmax, which this encoding replaces"),
        ("clipped_softmax", "sdpa", "kernel 'sdpa' computes a softmax, which this encoding replaces"),
        ("counted", "sdpa", "kernel 'sdpa' does not return attention weights"),
        ("forget_gate", "flex", "kernel 'flex' takes biases only"),
    ):
        with pytest.raises(ValueError, match=message):
            model_of(spec, kernel=kernel)(tokens(1, 8))


def test_no_table_is_made_where_a_kernel_can_do_without(model_of, tokens, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("a table of queries by keys")

    monkeypatch.setattr(choose.Table, "attend", fail)
    monkeypatch.setattr(choose.Reference, "attend", fail)
    for name in ("none", "sinusoidal", "learned", "rope"):
        for kind in ("decoder", "encoder"):
            for scale in ("none", "log_n", "scalable_softmax"):
                model_of(name, kind, logit_scale=scale)(tokens(1, 8))
    for name in ("alibi", "sandwich", "kerple", "dpb"):
        model_of(name)(tokens(1, 8))
        with torch.no_grad():
            model_of(name)(tokens(1, 8))
    with pytest.raises(AssertionError, match="a table"):
        model_of("fire")(tokens(1, 8))


def test_a_bias_costs_no_table_of_weights(model_of, tokens, monkeypatch):
    """On a CPU no tensor of size T S is kept for each sequence longer than `KEPT_LENGTH`."""
    monkeypatch.setattr(blocked_attention, "KEPT_LENGTH", 0)
    batch, length = 4, 65
    for name in ("none", "rope", "pope", "alibi", "t5", "fox", "cable"):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, sizes=sizes: sizes.append(x.untyped_storage().nbytes()), lambda x: x
        ):
            model_of(name, length=length)(tokens(batch, length))
        assert max(sizes) < 4 * batch * HEADS * length**2, name


def test_layers_with_a_bias_of_their_own_do_not_share_it(forgetful_registry, model_of, tokens):
    @zoo.register("own_bias")
    class OwnBias(Encoding):
        """Another slope in each layer."""

        per_layer = True

        def bias(self, head, q, k):
            return -0.5 * self.size.layer * (q - k).abs().float() * (head + 1)

    outputs = [model_of("own_bias", kernel=kernel)(tokens(2, 12)) for kernel in ("sdpa", "reference")]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mask", ["cached", "causal", "one query", "cached, padded, window"])
def test_other_devices_need_no_table_for_the_last_queries(mask, size_of, monkeypatch):
    monkeypatch.setattr(cpu_attention, "applies", lambda q: False)
    context = context_with(**MASKS[mask])
    if not context.masks_by_sequence:
        monkeypatch.setattr(table, "additive_mask", lambda *given: pytest.fail("a table"))
    encoding = encoding_of("none", size_of, context.causal)
    q, k, v = heads(context.num_queries, context.num_keys)
    scores = ScoreTerms(LayerEncodings([encoding]), [context])
    same(attend(q, k, v, scores, 1 / math.sqrt(D)), plain(q, k, v, encoding, context), mask)
