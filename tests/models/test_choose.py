"""The kernel that `choose` takes on a CPU and on a GPU."""

from types import SimpleNamespace

import pytest
import torch

from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings, build_encoding
from zoo.models.kernels import choose
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


@pytest.mark.parametrize(("names", "width", "on_cpu", "on_gpu"), KERNELS, ids=str)
def test_the_kernel_follows_from_the_encodings_and_the_device(names, width, on_cpu, on_gpu, size_of):
    size, pos = size_of(num_heads=4, d_model=4 * width), torch.arange(5)
    encodings = [build_encoding(name, size) for name in names]
    scores = ScoreTerms(LayerEncodings(encodings), [AttentionContext(pos, pos)] * len(names))
    for is_cuda, kernel in ((False, on_cpu), (True, on_gpu)):
        q = SimpleNamespace(shape=torch.Size((1, 4, 5, width)), is_cuda=is_cuda)
        assert choose("auto", q, scores) == kernel
        if kernel != "reference":
            assert choose("reference", q, scores) == "reference"
