"""The values that parameters start from.

Each is drawn from a generator of its own, seeded by (seed, parameter name). Two models that differ in their
encoding therefore share every other initial weight, bit for bit, whatever the order in which they are built.
"""

from __future__ import annotations

import torch
from torch import nn

from zoo.seeds import seed_of

WEIGHT_STD = 0.02


def draw_initial(model: nn.Module, seed: int, num_layers: int) -> None:
    """Set the parameters of a transformer (not those of its encodings) to their start, GPT-2's way.

    Weights are N(0, 0.02); a projection back into the residual stream is divided by sqrt(2 layers), so that
    the stream's variance does not grow with depth. Gains start at one and offsets at zero; a module whose
    vectors start from something else says so by `starts_from`.
    """
    for module_name, module in model.named_modules():
        for name, parameter in module.named_parameters(module_name, recurse=False):
            if name.startswith("encoding."):
                continue
            with torch.no_grad():
                if parameter.dim() < 2:
                    usual = 1.0 if name.endswith("weight") else 0.0
                    parameter.fill_(getattr(module, "starts_from", usual))
                    continue
                into_residual = getattr(module, "into_residual", False)
                std = WEIGHT_STD / (2 * num_layers) ** 0.5 if into_residual else WEIGHT_STD
                generator = torch.Generator().manual_seed(seed_of(seed, name))
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
