"""The share of several processes in a training: whether a recipe fits them, and FSDP on any device."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.accelerators import CUDAAccelerator, MPSAccelerator, XLAAccelerator
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from zoo.errors import InputError, Problem
from zoo.launch.devices import devices_taken
from zoo.launch.ranks import Launcher, find_launcher
from zoo.models.transformer import Transformer
from zoo.recipe import Recipe
from zoo.recipe.rules import batch_fault, cpu_precision_fault


def make_strategy(name: str, model: Transformer) -> str | Strategy:
    """The strategy of Lightning's Trainer for the recipe's `trainer.strategy`.

    Raises:
        InputError: a model that cannot be trained so.
    """
    if name != "fsdp":
        return name
    validate_shardable(model)
    return FullyShardedStrategy()


class FullyShardedStrategy(ModelParallelStrategy):
    """Weights, gradients and the optimizer's moments in shards over all processes, on GPUs and on the CPU.

    Lightning's own FSDPStrategy is torch's older FSDP: it refuses the CPU and does not clip by norm. A
    checkpoint is the single file that one process writes; any number of processes continues from it.
    """

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        # By default Lightning would take the devices of a node for tensor parallelism.
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def setup(self, trainer: pl.Trainer) -> None:
        self.accelerator.setup(trainer)
        self.model = self.precision_plugin.convert_module(self.lightning_module)
        self.model_to_device()
        shard(self.lightning_module.model, self.device_mesh["data_parallel"])
        self.barrier()
        if trainer.state.fn == TrainerFn.FITTING:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()

    def on_validation_start(self) -> None:
        # Every forward gathers from all processes, and this one may have fewer batches than another.
        trainer = self.lightning_module.trainer
        batches = trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        own = sum(batches)
        most = self.reduce(torch.tensor(own, device=self.root_device), reduce_op="max").item()
        token = torch.zeros(1, 1, dtype=torch.long, device=self.root_device)
        for _ in range(most - own):
            self.lightning_module(token)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint(checkpoint, filepath, storage_options)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return gather_full_state(self.lightning_module.state_dict(), keep=self.is_global_zero)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer.optimizer
        return gather_full_state(optimizer.state_dict(), keep=self.is_global_zero)

    @property
    def lightning_restore_optimizer(self) -> bool:
        # ModelParallelStrategy restores it itself, and takes its parameters to be in the model's order; an
        # optimizer with groups has an order of its own.
        return True

    def load_checkpoint(
        self, checkpoint_path: str | Path, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return Strategy.load_checkpoint(self, checkpoint_path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        own, given = self.lightning_module.state_dict(), checkpoint["state_dict"]
        mine = {name: to_shard(value, own.get(name)) for name, value in given.items()}
        self.lightning_module.load_state_dict(mine, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, given in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            numbers = [number for group in given["param_groups"] for number in group["params"]]
            mine = {
                number: {key: to_shard(value, parameter) for key, value in given["state"][number].items()}
                for number, parameter in zip(numbers, parameters, strict=True)
                if number in given["state"]
            }
            optimizer.load_state_dict({**given, "state": mine})


def shard(model: Transformer, mesh: DeviceMesh) -> None:
    """Shard every parameter over the processes, in place; make optimizers after it.

    A block is gathered where it is computed and dropped after. What several blocks may use (embedding,
    encodings, final norm, head) stays gathered from its first use to the end of the step. Every process must
    hold the same values.

    Raises:
        InputError: a parameter that cannot be divided.
    """
    validate_shardable(model)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    register_fsdp_forward_method(model, "hidden")  # text is scored by it, without `forward`


def validate_shardable(model: Transformer) -> None:
    """Raises InputError where a parameter is a single number, which cannot be divided among processes."""
    single = [name for name, parameter in model.named_parameters() if parameter.dim() == 0]
    if single:
        raise InputError(
            f"{', '.join(single)}: a parameter without a dimension cannot be shared out (FSDP); make it "
            f"one of shape [1], or train with ddp"
        )


def gather_full_state(state: Any, keep: bool = True) -> Any:
    """A state (dicts and lists of tensors and plain data) with full tensors instead of shards, on the CPU.

    All processes must call it. One after the other, so that no device holds all at once; a process that does
    not `keep` gets None instead of each, and copies none.
    """
    if isinstance(state, DTensor):
        full = state.full_tensor()
        return full.cpu() if keep else None
    if isinstance(state, Tensor):
        return state.cpu()
    if isinstance(state, dict):
        return type(state)((key, gather_full_state(value, keep)) for key, value in state.items())
    return [gather_full_state(value, keep) for value in state] if isinstance(state, list) else state


def to_shard(value: Any, like: Tensor | None) -> Any:
    """This process's shard of a full tensor, like `like`; anything else is returned as it is."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    # Every process has read the full tensor: nothing needs to be sent.
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def validate_world_size(recipe: Recipe) -> None:
    """Compare the devices of a recipe with the processes that were started, and its batch with the devices.

    Raises InputError. Without this check processes would wait for others that never start.
    """
    trainer, launcher = recipe.trainer, find_launcher() or Launcher("this command", 1, 1)
    devices = devices_taken(trainer.devices, trainer.accelerator)
    problems = []
    if launcher.name == "slurm" and "SLURM_NTASKS_PER_NODE" not in os.environ:
        fault = f"slurm has started {launcher.processes_per_node} processes without --ntasks-per-node"
        hint = f"give srun, or the job, --ntasks-per-node={launcher.processes_per_node}"
        problems.append(Problem(f"{fault}, which Lightning reads: {hint}", key="trainer.devices"))
    for key, wanted, started, unit in (
        ("trainer.devices", devices, launcher.processes_per_node, "processes on each machine"),
        ("trainer.num_nodes", trainer.num_nodes, launcher.num_nodes, "machines"),
    ):
        if wanted != started:
            fault = f"{wanted}, but {launcher.name} has started {started} {unit}"
            hint = f"give --set {key}={started}, or start {wanted} with torchrun (`zoo fit` starts devices)"
            problems.append(Problem(f"{fault}: {hint}", key=key))
    fault = batch_fault(recipe.data.batch_size, devices, trainer.num_nodes, trainer.accumulate_grad_batches)
    if fault and not problems:
        problems.append(Problem(fault, key="data.batch_size"))
    if problems:
        raise InputError(problems)


def validate_precision(recipe: Recipe) -> None:
    """Raises InputError where `accelerator: auto` is a CPU, which does not train in this precision."""
    fault = cpu_precision_fault(recipe.trainer.precision) if recipe.trainer.accelerator == "auto" else None
    if fault and not any(kind.is_available() for kind in (CUDAAccelerator, MPSAccelerator, XLAAccelerator)):
        raise InputError(Problem(fault, key="trainer.precision"))
