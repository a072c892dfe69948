"""The branches for a GPU, on machines without one: taken by CPU tensors whose `is_cuda` is true."""

import pytest
import torch

from zoo.models import cpu_attention, kernels, recomputed
from zoo.models.cache import Cache

# Of each hook, with and without a window.
KERNELS = [
    ("none", 4, "sdpa"),
    ("rope", None, "sdpa"),
    ("pope", 4, "sdpa"),
    ("t5", None, "sdpa"),
    ("kerple", 4, "sdpa"),
    ("alibi", 4, "sdpa"),  # FlexAttention needs heads at least 16 wide, and these are 8
    ("fox", None, "sdpa"),
    ("transformer_xl", 4, "sdpa"),
    ("cope", None, "reference"),
    ("rerope", 4, "reference"),
    ("shaw", None, "reference"),
]


@pytest.fixture
def on_cuda(monkeypatch):
    """Every tensor says that it is on CUDA; the kernels that were chosen."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    monkeypatch.setattr(cpu_attention, "applies", lambda q: False)
    monkeypatch.setattr(kernels, "_compiled_alone", lambda function: function)
    chosen, choose = [], kernels.choose
    monkeypatch.setattr(kernels, "choose", lambda *of: chosen.append(choose(*of)) or chosen[-1])
    return chosen


def passes(model, row, keep):
    """Logits in training and in evaluation, and the gradients."""
    model.zero_grad()
    model(row, keep)[keep].square().sum().backward()
    with torch.no_grad():
        logits = model(row, keep)[keep]
    return [logits, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize(("encoding", "window", "kernel"), KERNELS)
def test_with_gradients_it_is_the_reference(encoding, window, kernel, model_of, tokens, on_cuda):
    row, keep = tokens(2, 11), torch.arange(11) >= torch.tensor([[0], [3]])
    expected = passes(model_of(encoding, window=window, kernel="reference"), row, keep)
    on_cuda.clear()
    got = passes(model_of(encoding, window=window), row, keep)
    assert set(on_cuda) == {kernel}
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@torch.no_grad()
def test_a_fixed_bias_is_fused_and_decodes_with_a_cache(model_of, tokens, on_cuda):
    row, keep, encoding = tokens(2, 11), torch.arange(11) >= torch.tensor([[0], [3]]), ["rope", "alibi"]
    size = {"window": 4, "d_model": 64, "num_heads": 4}
    model = model_of(encoding, **size)
    expected = model_of(encoding, **size, kernel="reference")(row, keep)[keep]
    on_cuda.clear()
    torch.testing.assert_close(model(row, keep)[keep], expected, rtol=0, atol=1e-5)
    cache = Cache(model.num_layers)
    parts = [(row[:, :6], keep[:, :6]), (row[:, 6:7], None), (row[:, 7:], None)]
    steps = torch.cat([model(part, one, cache) for part, one in parts], 1)
    torch.testing.assert_close(steps[keep], expected, rtol=0, atol=1e-5)
    assert set(on_cuda) == {"flex"}


@torch.no_grad()
def test_larger_blocks_of_queries_give_the_same(model_of, tokens, on_cuda, monkeypatch):
    model, row, tables = model_of("transformer_xl", num_layers=1), tokens(1, 1024), []
    monkeypatch.setattr(kernels, "GPU_FACTOR", 1 << 20)
    expected = model(row)
    sdpa = kernels._sdpa
    monkeypatch.setattr(kernels, "_sdpa", lambda *of: tables.append(of[0].shape[2]) or sdpa(*of))
    monkeypatch.setattr(kernels, "BLOCK_ELEMENTS", 2**14)
    for blocks in (4, 16):
        monkeypatch.setattr(kernels, "GPU_FACTOR", blocks)
        tables.clear()
        torch.testing.assert_close(model(row), expected, rtol=0, atol=1e-5)
        assert tables[0] == max(16, blocks * 2**14 // (model.blocks[0].attention.num_heads * 1024))
        assert sum(tables) == 1024


@pytest.mark.parametrize("encoding", ["t5", "fire", "fox", "cope"])
def test_large_tables_are_computed_again(encoding, model_of, tokens, on_cuda, monkeypatch):
    """A fused kernel may keep tables that are sixteen times larger."""
    row, keep = tokens(2, 100), torch.ones(2, 100, dtype=torch.bool)
    model, blocks, attend = model_of(encoding, num_layers=1, length=100), [], recomputed.attend
    expected = passes(model_of(encoding, num_layers=1, length=100, kernel="reference"), row, keep)

    def watched(run, *given):
        return attend(lambda *of: blocks.append(of[0].shape) or run(*of), *given)

    monkeypatch.setattr(recomputed, "attend", watched)
    monkeypatch.setattr(kernels, "BLOCK_ELEMENTS", 0)
    table = 2 * model.blocks[0].attention.num_heads * 100**2
    kept = table if encoding == "cope" else -(-table // kernels.GPU_FACTOR)
    for most, count in ((kept, 0), (kept - 1, 4)):
        monkeypatch.setattr(kernels, "MOST_KEPT_ELEMENTS", most)
        blocks.clear()
        got = passes(model, row, keep)
        assert len(blocks) == count
        for one, other in zip(got, expected, strict=True):
            atol = 1e-4 * max(1.0, other.abs().max().item())
            torch.testing.assert_close(one, other, rtol=1e-4, atol=atol)


def test_a_mask_never_meets_cudnn(model_of, tokens, on_cuda, monkeypatch):
    enabled, sdpa = [], torch.nn.functional.scaled_dot_product_attention

    def watched(*of, **options):
        if options.get("attn_mask") is not None:
            enabled.append(torch.backends.cuda.cudnn_sdp_enabled())
        return sdpa(*of, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    model_of("t5")(tokens(2, 9)).sum().backward()
    assert enabled
    assert not any(enabled)
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


def test_values_of_another_width_are_not_padded(model_of, tokens, on_cuda, monkeypatch):
    widths, sdpa = [], torch.nn.functional.scaled_dot_product_attention

    def watched(q, k, v, **options):
        widths.append((k.shape[-1], v.shape[-1]))
        return sdpa(q, k, v, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    model = model_of("pope")
    model(tokens(2, 9))
    width = model.blocks[0].attention.head_dim
    assert set(widths) == {(2 * width, width)}
