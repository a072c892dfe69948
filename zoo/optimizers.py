"""Optimizers. Any `torch.optim.Optimizer` may be registered; its state is saved and restored as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from zoo import registry
from zoo.errors import InputError, Problem
from zoo.recipe.fields import AboveZero, Decay, NotNegative
from zoo.recipe.sections import OptimizerConfig, construct
from zoo.registry import register


@register.optimizer("adamw")
class AdamW(torch.optim.AdamW):
    """AdamW, with weight decay on the matrices of linear maps and on the token embedding.

    Args:
        weight_decay: weight decay of the matrices of linear maps and of the token embedding.
        betas: decay rates of the two moments.
        eps: added to the root of the second moment.
    """

    paper = "Loshchilov and Hutter 2019, arXiv:1711.05101"

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        weight_decay: NotNegative = 0.1,
        betas: tuple[Decay, Decay] = (0.9, 0.95),
        eps: AboveZero = 1e-8,
    ):
        super().__init__(params, lr=lr, weight_decay=weight_decay, betas=tuple(betas), eps=eps)


@register.optimizer("muon")
class Muon(torch.optim.Optimizer):
    """Muon (torch's own) for the matrices of linear maps and the token embedding, AdamW for all others.

    Both have the same learning rate. Updates of Muon are scaled to the RMS of AdamW's.

    Args:
        weight_decay: weight decay of the matrices of linear maps and of the token embedding.
        momentum: of Muon.
        betas: decay rates of AdamW's two moments.
        eps: added to the root of AdamW's second moment.
    """

    paper = "Liu et al. 2025, arXiv:2502.16982"

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        weight_decay: NotNegative = 0.1,
        momentum: Decay = 0.95,
        betas: tuple[Decay, Decay] = (0.9, 0.95),
        eps: AboveZero = 1e-8,
    ):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        matrices, others = (
            [group for group in self.param_groups if group.get("matrices", False) == are_matrices]
            for are_matrices in (True, False)
        )
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            muon = torch.optim.Muon(matrices, momentum=momentum, adjust_lr_fn="match_rms_adamw")
            self._parts.append(muon)
        if others:
            self._parts.append(torch.optim.AdamW(others, betas=tuple(betas), eps=eps))
        self.param_groups = [group for part in self._parts for group in part.param_groups]
        self._share()

    def _share(self) -> None:
        """Each part works on its groups of this optimizer, and keeps its state here."""
        start = 0
        for part in self._parts:
            stop = start + len(part.param_groups)
            part.param_groups, part.state = self.param_groups[start:stop], self.state
            start = stop

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            part.step()
        return loss


def build_optimizer(config: OptimizerConfig, model: nn.Module, precision: str) -> torch.optim.Optimizer:
    """Build the optimizer of a recipe. Weight decay is for `weight_matrices`.

    Vectors (phases, slopes, biases, scales) and an encoding's tables by position, distance or bucket are not
    decayed.

    Raises:
        InputError: it refuses its options, or has no fused kernel and `config.fused` is true.
    """
    weights = {id(weight) for weight in weight_matrices(model)}
    matrices = [p for p in model.parameters() if id(p) in weights]
    others = [p for p in model.parameters() if id(p) not in weights]
    undecayed = {"weight_decay": 0.0} if hasattr(config, "weight_decay") else {}
    groups = [{"params": matrices, "matrices": True}, {"params": others, "matrices": False, **undecayed}]
    optimizer = construct(registry.optimizers, config.name, config, [one for one in groups if one["params"]])
    # With 16-mixed only an optimizer that is not fused gets unscaled gradients for clipping.
    fused = precision != "16-mixed" if config.fused == "auto" else config.fused
    if config.fused is True and not any("fused" in group for group in optimizer.param_groups):
        raise InputError(Problem(f"{config.name} has no fused kernel", key="optimizer.fused"))
    for group in optimizer.param_groups:
        if fused and "fused" in group:
            group["fused"] = True
    return optimizer


def weight_matrices(model: nn.Module) -> Iterator[nn.Parameter]:
    """The matrices of linear maps, with those of encodings, and the token embedding."""
    for name, module in model.named_modules():
        # The embedding of an encoding is a table by position or distance.
        embedding = isinstance(module, nn.Embedding) and not name.startswith("encoding.")
        if isinstance(module, nn.Linear) or embedding:
            yield module.weight
        for own in getattr(module, "weight_matrices", ()):
            if (weight := getattr(module, own)) is not None:
                yield weight
