"""Two processes on the CPU that train the same models together.

    python -m zoo.contract.processes RANK FOLDER

is one of the two; `train_in_two` starts both. FOLDER/subjects.json lists what to train, and process 0 writes
FOLDER/faults.json.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from zoo import registry
from zoo.contract.law import first_line
from zoo.contract.small_model import Subject, some_tokens
from zoo.files import atomic_write
from zoo.launch.children import describe_exit, run_all
from zoo.models.shards import gather_full_state, shard

PROCESSES, STEPS = 2, 3
DONE = f"{PROCESSES} processes, {STEPS} steps, equal weights; the same in shards"
EQUAL = 1e-5
"""Largest difference between the weights of the sharded and the unsharded model."""
START_SECONDS, SECONDS_EACH = 120, 20


def train_in_two(subjects: Sequence[Subject]) -> list[str | None]:
    """The fault of each subject, or None. One pair of processes trains them all."""
    with tempfile.TemporaryDirectory() as folder:
        atomic_write(
            Path(folder) / "subjects.json",
            json.dumps(
                {"plugins": _plugins(), "subjects": [[one.spec, one.kind, one.config] for one in subjects]}
            ),
        )
        fault = _run(Path(folder), START_SECONDS + SECONDS_EACH * len(subjects))
        answer = Path(folder) / "faults.json"
        faults = json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else []
    # If they stopped early, that is the fault of the rest.
    return faults + [fault or "the processes stopped before it"] * (len(subjects) - len(faults))


def _plugins() -> list[str]:
    """The plugin files that were read here, which the processes must read too."""
    loose = (registry.encodings.describe(name) for name in registry.encodings.names())
    return sorted({str(one.file) for one in loose if one.module is None and one.file.is_file()})


def _run(folder: Path, seconds: float) -> str | None:
    """Start both and wait; returns what went wrong, if anything."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback:
        # Otherwise gloo resolves the host's name, which fails on some machines.
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)
    module = [sys.executable, "-m", "zoo.contract.processes"]
    ended = run_all([[*module, str(rank), str(folder)] for rank in range(PROCESSES)], environment, seconds)
    for code, stderr in ended:
        if code is None:
            return f"not finished within {seconds:.0f} seconds"
        if code:
            last = (stderr.strip().splitlines() or ["nothing on stderr"])[-1]
            return f"a process {describe_exit(code)}: {last}"
    return None


def main(rank: int, folder: Path) -> None:
    """One of the two."""
    torch.set_num_threads(1)
    request = json.loads((folder / "subjects.json").read_text(encoding="utf-8"))
    for file in request["plugins"]:
        registry.read_plugin(file)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=PROCESSES,
        timeout=timedelta(seconds=START_SECONDS),
    )
    faults = []
    for spec, kind, config in request["subjects"]:
        try:
            fault = _train(Subject(spec, kind, config=config), rank)
        except (Exception, SystemExit) as error:  # whatever a plugin's code does
            fault = first_line(error)
        faults_of_ranks: list[str | None] = [None] * PROCESSES
        dist.all_gather_object(faults_of_ranks, fault)
        faults.append(next((one for one in faults_of_ranks if one is not None), None))
        if rank == 0:
            atomic_write(folder / "faults.json", json.dumps(faults))
    dist.destroy_process_group()


def _train(subject: Subject, rank: int) -> str | None:
    model = subject.model(large_weights=False).train()
    # DDP raises if the step before left a parameter without a gradient.
    for _ in _steps(model, DistributedDataParallel(model), rank):
        mine = torch.cat([p.detach().flatten() for p in model.parameters()])
        theirs = [torch.empty_like(mine) for _ in range(PROCESSES)]
        dist.all_gather(theirs, mine)
        if not torch.equal(*theirs):
            return f"weights differ by {(theirs[0] - theirs[1]).abs().max().item():.2g}"
    in_shards = subject.model(large_weights=False).train()
    shard(in_shards, init_device_mesh("cpu", (PROCESSES,)))
    for _ in _steps(in_shards, in_shards, rank):
        pass
    expected = model.state_dict()
    for name, weight in gather_full_state(in_shards.state_dict()).items():
        difference = (weight - expected[name]).abs().max().item() if weight.numel() else 0.0
        if not difference <= EQUAL:
            return f"in shards, {name} differs by {difference:.2g} from what DDP trains"
    return None


def _steps(model: nn.Module, called: nn.Module, rank: int) -> Iterator[None]:
    """Train on this process's part of a batch; `called` is what shares the gradients of `model`."""
    torch.manual_seed(rank)  # each draws its own, where something is drawn
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = some_tokens(4, 16)[rank::PROCESSES]
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(called(batch).flatten(0, 1), batch.roll(-1, 1).flatten()).backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
