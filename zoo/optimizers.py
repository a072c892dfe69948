"""Optimizers. Any `torch.optim.Optimizer` may be registered; its state is saved and restored as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import torch
from pydantic import Field
from torch.nn import Parameter

from zoo import registry
from zoo.recipe.field_types import Number
from zoo.recipe.schema import OptimizerConfig
from zoo.recipe.sections import construct
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
        weight_decay: Annotated[Number, Field(ge=0)] = 0.1,
        betas: tuple[Annotated[Number, Field(ge=0, lt=1)], Annotated[Number, Field(ge=0, lt=1)]] = (
            0.9,
            0.95,
        ),
    ):
        super().__init__(params, lr=lr, weight_decay=weight_decay, betas=tuple(betas))


def build_optimizer(
    config: OptimizerConfig, parameters: Iterable[Parameter], fused: bool
) -> torch.optim.Optimizer:
    """The optimizer of a recipe.

    Where it has a `weight_decay`, that is for matrices alone.

    Args:
        parameters: those that are trained.
        fused: take the fused kernel where the optimizer has one.
    """
    parameters = list(parameters)
    groups: list[dict[str, Any]] = [{"params": [p for p in parameters if p.dim() >= 2]}]
    groups += [{"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    if not hasattr(config, "weight_decay"):
        groups = [{"params": parameters}]
    groups = [group for group in groups if group["params"]]
    optimizer = construct(registry.optimizers, config.name, config, groups)
    for group in optimizer.param_groups:
        if fused and "fused" in group:
            group["fused"] = True
    return optimizer
