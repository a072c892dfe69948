"""Two steps of training in two processes, next to those of one: sequences in parts, and models in parts.

A patch of `forked_runs.py`: `zoo list` then tries the subjects of the contract and prints, as JSON, the
largest differences of the weights of each, or the error that it raises.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from test_contract import DEFAULTS, OTHERS, plugins_known

from zoo.commands import list_things
from zoo.contract.subject import LENGTH, Subject
from zoo.launch.team import join
from zoo.models.sequence_split import SequenceSplit
from zoo.training.module import TaskModule

EQUAL = 1e-6
MODELS = [
    {"kv_shift": True, "num_kv_heads": 2, "window": 5},
    {"num_kv_heads": 3, "norm_position": "post", "embedding_norm": "with_positions"},
    {"window": [4, None], "sink_tokens": 1, "logit_scale": "temperature"},
]


def subjects():
    """Every encoding, some of the contract's options and lists, and other models around some encodings."""
    whole = [*DEFAULTS, *OTHERS[::4]]
    yield from (one for one in whole if not any(about.replaces for about in one.descriptions))
    yield from (Subject(spec, config=config) for spec in ("rope", "fox", "alibi") for config in MODELS)


def weights(model):
    full = (one.full_tensor() if isinstance(one, DTensor) else one for one in model.parameters())
    return torch.cat([one.detach().flatten() for one in full])


def trained(subject, dtype, how, rank, size):
    """The weights after two steps; `how`: alone, a sequence in parts, or the model in parts."""
    model = subject.model(large_weights=False).to(dtype).train()
    batch, called, first = subject.tokens(2, 2 * LENGTH), model, 0
    if how == "sequence":
        model.split = SequenceSplit(rank, size, dist.group.WORLD)
        called = DistributedDataParallel(model)
    elif how == "model":
        mesh = {"data_parallel": init_device_mesh("cpu", (size,))}
        TaskModule.configure_model(SimpleNamespace(device_mesh=mesh, model=model))
        batch, first = batch[rank : rank + 1], rank
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        model.encoding.seed_draws(0, step, batch, first)
        optimizer.zero_grad()
        (called(batch, targets=batch.roll(-1, 1)) / batch.numel()).backward()
        optimizer.step()
    return weights(model)


def differences(subject, rank, size):
    """The largest differences of the weights by the way of division."""
    for dtype in (torch.float32, torch.float64):  # a fault stays in float64, and rounding does not
        alone, *parts = (trained(subject, dtype, how, rank, size) for how in ("alone", "sequence", "model"))
        found = torch.stack([(one - alone).abs().max() for one in parts])
        dist.all_reduce(found, dist.ReduceOp.MAX)
        if (found <= EQUAL).all():
            break
    return found.tolist()


def verb(options):
    found = {}
    with join(None, "cpu") as team, plugins_known():
        for subject in subjects():
            try:
                found[str(subject)] = differences(subject, team.rank, team.size)
            except Exception as error:  # in all processes
                found[str(subject)] = f"{type(error).__name__}: {error}"
        if team.rank == 0:
            print(json.dumps(found))


list_things.run = verb
