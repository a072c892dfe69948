"""ALiBi against the formula of the paper, against BLOOM's slopes, and its forms for encoders."""

import pytest
import torch

from zoo.encodings.bias.alibi import ALiBi, geometric_slopes, official_slopes
from zoo.encodings.context import AttentionContext

# From the authors' own function, as printed for 12 heads.
TWELVE = [2.0**-e for e in (1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5)]


def table_of(encoding, length, causal=True, first=0):
    pos = torch.arange(length)
    context = AttentionContext(pos[first:], pos, first, causal, consecutive=True)
    return encoding.bias_table(context, encoding.size.num_heads)


@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_slopes_and_bias_are_those_of_bloom(learned, size_of, agree):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    for heads in (4, 6, 8, 12, 16):
        ramp = bloom.build_alibi_tensor(torch.ones(1, 30, dtype=torch.long), heads, torch.float32)
        against = "transformers build_alibi_tensor (BLOOM)"
        agree(torch.tensor(official_slopes(heads)), ramp[:, 0, 1], encoding="alibi", against=against)
        # BLOOM adds m j: for a query at i that is -m (i - j) and m i, which softmax does not see.
        actual = table_of(ALiBi(size_of(num_heads=heads, d_model=8 * heads), learned=learned), 30)
        past = torch.ones(30, 30).tril()
        expected = ramp - ramp.transpose(1, 2)
        agree(actual * past, expected * past, encoding="alibi", against=against)


def test_the_official_slopes_are_geometric_where_heads_are_a_power_of_two():
    for heads in (1, 2, 4, 8, 12, 16, 32):
        geometric = [2 ** (-8 * h / heads) for h in range(1, heads + 1)]
        assert geometric_slopes(heads) == pytest.approx(geometric)
        assert (official_slopes(heads) == pytest.approx(geometric)) == (heads != 12)


def test_harmonic_slopes_are_one_over_the_number_of_the_head(size_of, agree):
    expected = [[-abs(i - j) / h for j in range(9)] for h in range(1, 7) for i in range(9)]
    bias = table_of(ALiBi(size_of(num_heads=6), slopes="harmonic"), 9, causal=False)
    against = "loop over 1/h, the slopes of NAPE"
    agree(bias, torch.tensor(expected).view(6, 9, 9), encoding="alibi", against=against)


@pytest.mark.parametrize(("causal", "learned"), [(True, False), (False, True)])
def test_bias_is_slope_times_distance(causal, learned, size_of, agree):
    heads, length = 12, 9
    encoding = ALiBi(size_of(num_heads=heads, causal=causal), learned=learned)
    bias = encoding.bias_table(
        AttentionContext(torch.arange(length), torch.arange(length), causal=causal), heads
    )
    expected = torch.zeros(heads, length, length)
    for h in range(heads):
        for i in range(length):
            for j in range(length):
                expected[h, i, j] = -TWELVE[h] * abs(i - j)
    agree(bias, expected, encoding="alibi", against="loop over the formula of the paper")


def test_learned_slopes_start_at_the_fixed_ones_and_stay_positive(model_of, tokens):
    fixed, learned = model_of("alibi"), model_of({"name": "alibi", "learned": True}, num_layers=2)
    encoding = learned.encoding.slots[0][0]
    assert [n for n, _ in learned.named_parameters() if "encoding" in n] == ["encoding.slots.0.0.log_slope"]
    # Undo the noise of the large weights.
    learned.load_state_dict(
        {**fixed.state_dict(), "encoding.slots.0.0.log_slope": torch.tensor(official_slopes(6)).log()}
    )
    torch.testing.assert_close(learned(tokens(2, 16)), fixed(tokens(2, 16)), rtol=0, atol=1e-5)
    # A step far beyond any that training takes, in the direction of slopes below 0.
    optimizer = torch.optim.SGD([encoding.log_slope], lr=1.0)
    (10 * encoding.log_slope.exp().sum()).backward()
    optimizer.step()
    bias = encoding.bias(torch.arange(6)[:, None], torch.tensor([0, 1, 100_000]), torch.tensor([0]))
    assert bias.isfinite().all()
    assert (bias.diff(dim=-1) < 0).all()
