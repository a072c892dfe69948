"""The message of a broken law names the line of the plugin and the likely cause."""

import pytest

from zoo.contract import LAWS, Subject

HEAD = """import torch
from torch import nn
import zoo

@zoo.register("own")
class Own(zoo.Encoding):
    'Is faulty.'
    family = "bias"

"""
SUPER = "    def __init__(self, size):\n        super().__init__(size)\n"
BIAS = "    def bias(self, head, q, k):\n        return -self.slope * (q - k).abs()\n"
WAVES = (
    "    def embed(self, x, pos):\n"
    "        return x + (pos[..., None] * torch.linspace(0, 1, x.shape[-1])).sin()\n"
)
FAULTS = {
    "typo in a hook": (
        "    def bias(self, head, q, k):\n        return -(q - k).abs() / self.length\n",
        "shapes", 11, "did you mean self.size.length?",
    ),
    "typo in a constructor": (
        SUPER + "        self.slope = 1 / self.num_heads\n" + BIAS,
        "it can be built", 12, "did you mean self.size.num_heads?",
    ),
    "no super().__init__, with a parameter": (
        "    def __init__(self, size):\n        self.slope = nn.Parameter(torch.ones(1))\n" + BIAS,
        "it can be built", 11, "call super().__init__(size) first",
    ),
    "a table of the heads without head": (
        SUPER + "        self.table = nn.Parameter(torch.randn(size.length, size.num_heads))\n"
        "    def bias(self, head, q, k):\n"
        "        return self.table[(q - k).abs().clamp(max=self.size.length - 1)]\n",
        "shapes", 13, "a table of the heads is indexed by `head`",
    ),
    "a table that ends": (
        SUPER + "        self.table = nn.Parameter(torch.randn(20, size.d_model))\n"
        "    def embed(self, x, pos):\n        return x + self.table[pos]\n",
        "longer sequences can be computed", 14, "override `max_length`",
    ),
    "positions from 0 in every call": (
        "    def positions(self, ids, batch):\n        return torch.arange(ids.shape[-1])\n" + WAVES,
        "cached decoding equals the full forward", 10, "positions of 'own' differs while decoding",
    ),
    "random numbers in evaluation": (
        "    def score(self, q, k, context):\n        return 0.1 * torch.randn(k.shape[2])\n",
        "evaluation is deterministic", 10, "score of 'own' draws random numbers in evaluation",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_line_and_the_likely_cause_are_named(fault, tmp_path, forgetful_registry):
    source, name, line, cause = FAULTS[fault]
    (tmp_path / "own.py").write_text(HEAD + source)
    forgetful_registry.load_plugin(tmp_path / "own.py")
    (law,) = [law for law in LAWS if law.name == name]
    finding = law.try_on(Subject("own"))
    assert not finding.passed
    assert cause in finding.numbers
    assert f"{tmp_path / 'own.py'}:{line}" in f"{finding.where} {finding.numbers}"
