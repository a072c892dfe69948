"""A model in shards: each of several processes keeps its share of every parameter (FSDP)."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from zoo.errors import InputError
from zoo.models.transformer import Transformer


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
