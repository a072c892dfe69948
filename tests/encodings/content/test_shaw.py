"""Shaw's representations against a loop over the paper's equations 3 to 5, in a decoder and in an encoder."""

import math

import pytest
import torch

from zoo.encodings.content.shaw import Shaw
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import LayerEncodings
from zoo.models.plans.choose import attend
from zoo.models.scores import ScoreTerms

B, H, T, D, FAR = 2, 3, 9, 8, 3


def equations(q, k, v, keys, values, causal, keep):
    """z_i = sum_j a_ij (v_j + a^V_ij), a_ij = softmax_j of e_ij = q_i (k_j + a^K_ij) / sqrt(D)."""
    z = torch.zeros(B, H, T, D)
    for b in range(B):
        for h in range(H):
            for i in range(T):
                seen = [j for j in range(T) if keep[b, j] and (j <= i or not causal)]
                if not seen:
                    continue
                row = {j: max(-FAR, min(FAR, j - i)) + FAR for j in seen}
                e = torch.stack([q[b, h, i] @ (k[b, h, j] + keys[row[j]]) for j in seen]) / math.sqrt(D)
                a = e.exp() / e.exp().sum()
                for weight, j in zip(a, seen, strict=True):
                    z[b, h, i] += weight * (v[b, h, j] + (0 if values is None else values[row[j]]))
    return z


@pytest.mark.parametrize(
    ("causal", "values", "padded"), [(True, True, 0), (True, False, 4), (False, True, 4), (False, False, 0)]
)
def test_the_equations_of_the_paper(causal, values, padded, size_of, agree):
    encoding = Shaw(size_of(d_model=H * D, num_heads=H, causal=causal), max_distance=FAR, values=values)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    q, k, v = torch.randn(3, B, H, T, D)
    keep = torch.arange(T)[None] >= torch.tensor([[0], [padded]])
    pos = (keep.long().cumsum(1) - 1).clamp(min=0)
    context = AttentionContext(pos, pos, causal=causal, keep=keep if padded else None)
    got = attend(q, k, v, ScoreTerms(LayerEncodings([encoding]), [context]), D**-0.5)
    expected = equations(q, k, v, encoding.keys, encoding._parameters["values"], causal, keep)
    # The output of a padded query is undefined.
    real = keep[:, None, :, None]
    agree(got * real, expected * real, encoding="shaw", against="formula: equations 3 to 5, by a loop")
