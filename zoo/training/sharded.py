"""A model in parts: FSDP2 through Lightning, with the checkpoints of any other run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only


class ShardedStrategy(ModelParallelStrategy):
    """Each process holds its share of weights, gradients and moments; see `TaskModule.configure_model`.

    Lightning's way to store moments takes parameters to be in the model's order, which groups change.
    """

    lightning_restore_optimizer = True

    def __init__(self, processes: int):
        super().__init__(processes, tensor_parallel_size=1, save_distributed_checkpoint=False)

    def on_validation_start(self) -> None:
        # Every forward pass gathers from all processes, and this one may have fewer batches than another.
        own = sum(self.lightning_module.trainer.num_val_batches)
        most = self.reduce(torch.tensor(own, device=self.root_device), reduce_op="max")  # in place
        for _ in range(int(most) - own):
            self.lightning_module.model(most.new_zeros(1, 1))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        def whole(shard: DTensor) -> Tensor | None:
            full = shard.full_tensor()  # one after the other: no device holds all of them at once
            return full.cpu() if self.is_global_zero else None

        return tree_map_only(DTensor, whole, optimizer.state_dict())

    def load_checkpoint(self, path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        return Strategy.load_checkpoint(self, path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        options = StateDictOptions(full_state_dict=True, strict=strict)
        set_model_state_dict(self.lightning_module, checkpoint["state_dict"], options=options)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, given in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            own, theirs = (
                [one for group in groups for one in group["params"]]
                for groups in (optimizer.param_groups, given["param_groups"])
            )
            for one, number in zip(own, theirs, strict=True):
                state = given["state"].get(number, {})
                for key, whole in state.items():
                    if isinstance(whole, Tensor) and whole.shape == one.shape:
                        place = one.device_mesh, one.placements
                        state[key] = distribute_tensor(whole.to(one.device), *place, src_data_rank=None)
            optimizer.load_state_dict(given)
