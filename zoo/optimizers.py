"""Optimizers. Any `torch.optim.Optimizer` may be registered; its state is saved and restored as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import Parameter

from zoo import registry
from zoo.field_types import Decay, NotNegative
from zoo.recipe.sections import OptimizerConfig, construct
from zoo.registry import register


@register.optimizer("adamw")
class AdamW(torch.optim.AdamW):
    """AdamW, with weight decay on matrices only.

    Args:
        weight_decay: weight decay of matrices.
        betas: decay rates of the two moments.
    """

    paper = "Loshchilov and Hutter 2019, arXiv:1711.05101"

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        weight_decay: NotNegative = 0.1,
        betas: tuple[Decay, Decay] = (0.9, 0.95),
    ):
        super().__init__(params, lr=lr, weight_decay=weight_decay, betas=tuple(betas))


@register.optimizer("muon")
class Muon(torch.optim.Optimizer):
    """Muon (torch's own) for matrices, and AdamW for all else; both with the same learning rate.

    The embedding is a matrix too. Learning rates are matched to those of AdamW by scaling updates to its RMS.

    Args:
        weight_decay: weight decay of matrices.
        momentum: of Muon.
        betas: decay rates of AdamW's two moments.
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
    ):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        matrices, others = (
            [
                {**group, "params": chosen}
                for group in self.param_groups
                if (chosen := [p for p in group["params"] if (p.dim() == 2) == two_dimensional])
            ]
            for two_dimensional in (True, False)
        )
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            muon = torch.optim.Muon(matrices, momentum=momentum, adjust_lr_fn="match_rms_adamw")
            self._parts.append(muon)
        if others:
            self._parts.append(torch.optim.AdamW(others, betas=tuple(betas)))
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


def build_optimizer(
    config: OptimizerConfig, parameters: Iterable[Parameter], fused: bool
) -> torch.optim.Optimizer:
    """The optimizer of a recipe. Where it has a `weight_decay`, that is for matrices alone.

    Args:
        parameters: those that are trained.
        fused: take the fused kernel where the optimizer has one.
    """
    parameters = list(parameters)
    groups: list[dict[str, Any]] = [{"params": parameters}]
    if hasattr(config, "weight_decay"):
        matrices, others = [p for p in parameters if p.dim() >= 2], [p for p in parameters if p.dim() < 2]
        groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    optimizer = construct(registry.optimizers, config.name, config, groups)
    for group in optimizer.param_groups:
        if fused and "fused" in group:
            group["fused"] = True
    return optimizer


def example_state(config: OptimizerConfig, dim: int) -> tuple[torch.Size, dict[str, Any]]:
    """A shape of `dim` dimensions, and what a recipe's optimizer keeps for a parameter of that shape."""
    parameter = Parameter(torch.ones(*range(2, 2 + dim)))
    parameter.grad = torch.ones_like(parameter)
    optimizer = build_optimizer(config, [parameter], fused=False)
    optimizer.step()
    return parameter.shape, dict(optimizer.state[parameter])
