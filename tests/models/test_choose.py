"""The kernel that `choose` takes on a CPU and on a GPU."""

import sys
from types import SimpleNamespace

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.models.plans import flex
from zoo.models.plans.choose import choose_kernel
from zoo.models.scores import ScoreTerms

# Encodings, the width of a head, and the kernels on a CPU and on a GPU.
KERNELS = [
    (["none"], 16, "sdpa", "sdpa"),
    (["rope"], 16, "sdpa", "sdpa"),
    (["alibi"], 16, "sdpa", "flex"),
    (["rope", "alibi"], 64, "sdpa", "flex"),
    (["alibi"], 8, "sdpa", "sdpa"),  # FlexAttention takes heads at least 16 wide
    (["t5"], 16, "sdpa", "flex"),
    (["dpb"], 16, "sdpa", "flex"),
    (["t5"], 8, "sdpa", "reference"),  # its bias is learned: SDPA rounds the gradient
    (["t5", "transformer_xl"], 16, "sdpa", "reference"),
    (["alibi", "transformer_xl"], 16, "sdpa", "sdpa"),  # its scores depend on content
    (["fox"], 16, "sdpa", "sdpa"),
    (["cope"], 16, "reference", "reference"),
    (["rerope"], 16, "reference", "reference"),
    (["shaw"], 16, "reference", "reference"),
    (["entmax"], 16, "reference", "reference"),
]


def query(width, is_cuda):
    shape, device = torch.Size((1, 4, 5, width)), torch.device("cpu")
    return SimpleNamespace(shape=shape, is_cuda=is_cuda, device=device, dtype=torch.float32)


@pytest.mark.parametrize(("names", "width", "on_cpu", "on_gpu"), KERNELS, ids=str)
def test_the_kernel_follows_from_the_encodings_and_the_device(
    names, width, on_cpu, on_gpu, size_of, monkeypatch
):
    monkeypatch.setattr(flex, "bias_gradient_agrees", lambda *given: True)
    size, pos = size_of(num_heads=4, d_model=4 * width), torch.arange(5)
    encodings = [build_encoding(name, size) for name in names]
    scores = ScoreTerms(LayerEncodings(encodings), [AttentionContext(pos, pos)] * len(names))
    for is_cuda, kernel in ((False, on_cpu), (True, on_gpu)):
        q = query(width, is_cuda)
        assert choose_kernel("auto", q, scores) == kernel
        if kernel != "reference":
            assert choose_kernel("reference", q, scores) == "reference"


def right_gradient(dout, bias, q, k, v, seen, ahead, scale):
    """The gradient of a bias by autograd, in place of the kernel in Triton."""
    with torch.enable_grad():
        bias = bias.detach().requires_grad_()
        logits = (q @ k.mT * scale + bias).masked_fill(~seen[:, None], -torch.inf)
        return torch.autograd.grad((logits.softmax(-1) @ v * dout).sum(), bias)[0]


def raises(*_):
    raise RuntimeError("out of resource: shared memory")


@pytest.mark.parametrize(("gradient", "chosen", "fault"), [
    (right_gradient, "flex", None),
    (lambda *given: 1.01 * right_gradient(*given), "reference", "is off by 1.0%"),
    (lambda *given: right_gradient(*given) * torch.nan, "reference", "is off by nan%"),
    (raises, "reference", "fails: out of resource"),
])  # fmt: skip
@pytest.mark.parametrize("compiled", [False, True])
def test_a_faulty_gradient_of_biases_gives_way_to_the_reference(
    gradient, chosen, fault, compiled, size_of, monkeypatch, capsys
):
    """Checked once, with one line, and without a draw from the generator of the training."""
    faked = SimpleNamespace(bias_gradient=gradient)
    monkeypatch.setitem(sys.modules, "zoo.models.kernels.bias_gradient", faked)
    flex._bias_gradient_agrees.cache_clear()
    pos = torch.arange(5)
    encoding = build_encoding("t5", size_of(num_heads=4, d_model=64))
    scores = ScoreTerms(LayerEncodings([encoding]), [AttentionContext(pos, pos)])
    before, q = torch.get_rng_state(), query(16, is_cuda=True)

    def run(x):
        return x * ("flex", "reference").index(choose_kernel("auto", q, scores))

    for _ in range(3):
        torch.compiler.reset()
        one = torch.compile(run, backend="eager", fullgraph=True) if compiled else run
        assert one(torch.ones(())) == ("flex", "reference").index(chosen)
    assert torch.equal(torch.get_rng_state(), before)
    printed = capsys.readouterr().err
    assert printed.count("\n") == (fault is not None) and (fault or "") in printed
    flex._bias_gradient_agrees.cache_clear()
