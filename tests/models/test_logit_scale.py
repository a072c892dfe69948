"""Logits scaled by log n equal the formula of the papers on every path; n is the number of keys that a query
sees."""

import math
from dataclasses import replace

import pytest
import torch
from layouts import MASKS, B, D, H, context_with, gradients, heads, softmax, visible

from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.models import kernels
from zoo.models.kernels import attend
from zoo.models.logit_scale import LogitScale, RowScale
from zoo.models.scores import ScoreTerms
from zoo.runs.card import parameter_counts
from zoo.tasks import build_task

# One for each hook that changes the logits, and a bias that excludes keys.
SPECS = {
    "none": "none",
    "rotate": "rope",
    "bias": "alibi",
    "learned bias": "t5",
    "closed to one side": {"name": "alibi", "form": "one_sided"},
    "score": "transformer_xl",
    "score of features": "fox",
    "logits": "cope",
    "value": "shaw",
    "several": ["rope", "alibi"],
}


def learned_scale():
    """Another s in each head, one of them negative."""
    scale = LogitScale("scalable_softmax", H).double()
    with torch.no_grad():
        scale.s.copy_(torch.tensor([0.168, 0.9, -0.4, 1.7]))
    return scale


def encodings_of(specs, size_of, causal):
    specs = specs if isinstance(specs, list) else [specs]
    made = [build_encoding(spec, size_of(d_model=H * D, num_heads=H, causal=causal)) for spec in specs]
    for parameter in (p for encoding in made for p in encoding.parameters()):
        torch.nn.init.normal_(parameter)
    return [encoding.double() for encoding in made]


def same(actual, expected, atol, what):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol, msg=lambda text: f"{what}: {text}")


def plain(q, k, v, view, contexts, s):
    """softmax of s log n times the logits; s [H,1,1]. A key that a bias excludes counts into n."""
    scores = ScoreTerms(view, contexts, content=(q, k))
    added = scores.added(q, k)
    turned_q, turned_k = view.rotate(q, k, contexts)
    logits = turned_q @ turned_k.mT / math.sqrt(D)
    logits = scores.logits(logits if added is None else logits + added, q, k)
    seen = visible(contexts[0])
    excluded = logits == -torch.inf
    factor = s * seen.sum(-1, keepdim=True).clamp(min=1).double().log()
    weights = softmax(logits.masked_fill(excluded, 0.0) * factor, seen & ~excluded)
    out, extra = weights @ v, scores.value(weights)
    return out if extra is None else out + extra


@pytest.mark.parametrize("hook", SPECS)
def test_outputs_and_gradients_are_those_of_the_formula(hook, size_of):
    for mask, options in MASKS.items():
        context = context_with(**options)
        if hook in ("score of features", "logits") and not context.causal:
            continue  # for decoders only
        view = LayerEncodings(encodings_of(SPECS[hook], size_of, context.causal))
        x = torch.randn(B, context.num_keys, H * D, dtype=torch.float64)
        contexts = [
            context if r is None else type(context)(**{**vars(context), "features": r.double()})
            for encoding in view.encodings
            for r in [encoding.read(x)]
        ]
        q, k, v = heads(context.num_queries, context.num_keys)
        if view.valued:
            v = v[..., :D].detach().requires_grad_()
        scale = learned_scale()
        inputs = [q, k, v, scale.s, *(p for encoding in view.encodings for p in encoding.parameters())]
        expected = plain(q, k, v, view, contexts, scale.s[:, None, None])
        exact = gradients(expected, inputs)
        for kernel in ("auto",) if view.reshaped or view.valued else ("sdpa", "reference"):

            def attended(scale, kernel=kernel, view=view, contexts=contexts, q=q, k=k, v=v):
                scores = ScoreTerms(view, contexts, content=(q, k), row_scale=scale(contexts[0], q.dtype))
                return attend(*view.rotate(q, k, contexts), v, scores, D**-0.5, kernel)

            got = attended(scale)
            for one, other in zip((got, *gradients(got, inputs)), (expected, *exact), strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    same(one, other, 1e-9, f"{mask}, {kernel}")
            same(attended(LogitScale("log_n", H)), plain(q, k, v, view, contexts, 1.0), 1e-10, mask)


def test_layers_with_different_windows_have_different_factors():
    """The contexts of one forward pass share what they compute."""
    wide = context_with(**MASKS["left padding"])
    for context in (wide, replace(wide, window=3)):
        expected = visible(context).sum(-1).clamp(min=1).double().log()
        assert torch.equal(LogitScale("log_n", H)(context, torch.float64).factor_BHT1[..., 0], expected)


def test_layers_share_the_table_of_a_bias(model_of, tokens, monkeypatch):
    for name in ("alibi", "t5"):
        for kind in ("none", "log_n", "scalable_softmax"):
            model, calls = model_of(name, num_layers=4, logit_scale=kind), []
            encoding = model.encoding.layer(0).encodings[0]
            bias = encoding.bias
            monkeypatch.setattr(
                encoding, "bias", lambda *at, bias=bias, calls=calls: calls.append(1) or bias(*at)
            )
            model(tokens(1, 8))
            assert len(calls) == 1, (name, kind)


def test_no_table_is_made_where_a_kernel_can_do_without(model_of, tokens, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("a table of queries by keys")

    monkeypatch.setattr(ScoreTerms, "additive_mask", fail)
    monkeypatch.setattr(kernels, "_reference", fail)
    for kind in ("log_n", "scalable_softmax"):
        for name in ("none", "sinusoidal", "rope"):
            model_of(name, logit_scale=kind)(tokens(1, 8))
            model_of(name, "encoder", logit_scale=kind)(tokens(1, 8))


def test_without_a_scale_no_logit_is_scaled(model_of, tokens, monkeypatch):
    def fail(*_):
        raise AssertionError("a logit is scaled")

    for owner, method in ((LogitScale, "forward"), (RowScale, "of_queries"), (RowScale, "of_table")):
        monkeypatch.setattr(owner, method, fail)
    for spec in SPECS.values():
        model = model_of(spec)
        assert not [name for name, _ in model.named_modules() if "logit_scale" in name]
        model(tokens(1, 8))
        with pytest.raises(AssertionError, match="a logit is scaled"):
            model_of(spec, logit_scale="log_n")(tokens(1, 8))


# s, as a parameter of the model.


def test_s_starts_where_the_paper_s_does_and_every_other_weight_as_without(model_of):
    plain, scaled = (
        dict(model_of("t5", large_weights=False, logit_scale=kind).named_parameters())
        for kind in ("none", "scalable_softmax")
    )
    own = {name: p for name, p in scaled.items() if name not in plain}
    assert list(own) == [f"blocks.{layer}.attention.logit_scale.s" for layer in range(2)]
    for p in own.values():
        assert p.shape == (6,) and (p == 0.168).all()
    assert all(torch.equal(scaled[name], p) for name, p in plain.items())
    # The paper's number: over 1024 trained positions s log n is 1 in the mean.
    assert 1 / torch.arange(1, 1025).log().mean().item() == pytest.approx(0.168, abs=1e-3)
    assert not [name for name, _ in model_of("t5", logit_scale="log_n").named_parameters() if "scale" in name]


def test_s_is_no_parameter_of_the_encoding_and_does_not_decay(recipe):
    task, plain = (
        build_task(recipe("text", f"model.logit_scale={kind}"), 300) for kind in ("scalable_softmax", "none")
    )
    s = [p for name, p in task.model.named_parameters() if name.endswith("logit_scale.s")]
    counts, before = parameter_counts(task.model), parameter_counts(plain.model)
    # One layer of two heads.
    assert len(s) == 1 and counts == {**before, "other": before["other"] + 2, "total": before["total"] + 2}
    matrices, vectors = task.configure_optimizers()["optimizer"].param_groups
    assert any(p is s[0] for p in vectors["params"]) and vectors["weight_decay"] == 0
    assert not any(p is s[0] for p in matrices["params"])
