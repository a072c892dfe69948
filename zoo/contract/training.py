"""Training: a gradient for every parameter, in one process and in two; and memory at long sequences."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo import registry
from zoo.contract.kernel_equivalence import NO_TABLE_KEPT, NO_WEIGHTS_KEPT, SMALLEST_BLOCKS
from zoo.contract.law import Outcome, failed, law, only, passed, within
from zoo.contract.subject import Subject, first_kind, some_tokens, trained
from zoo.encodings.likely_cause import explained

GRADIENTS = "every parameter has a gradient"
MODERN = {"norm": "rmsnorm", "activation": "swiglu", "qk_norm": True, "tie_embeddings": False,
          "norm_position": "both"}  # fmt: skip
POST = {"norm_position": "post", "activation": "geglu", "bias": "all", "head_transform": True,
        "attention_scale": 0.5, "embedding_scale": "sqrt_d_model"}  # fmt: skip
PROCESSES, STEPS, FAULTS = 2, 3, "faults.json"


def _steps(model: nn.Module, called: nn.Module, batch: Tensor, steps: int) -> Iterator[None]:
    """Train a model, pausing after each step; `called` is the model or its DDP wrapper."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(called(batch).flatten(0, 1), batch.roll(-1, 1).flatten()).backward()
        optimizer.step()
        yield


@law(
    GRADIENTS,
    "Every parameter that is not frozen has a finite gradient, nonzero in the first or the second step.",
    trained,
)
def every_parameter(subject: Subject) -> Iterator[Outcome]:
    heads = subject.size().num_heads
    grouped = {"num_kv_heads": heads // 2} if heads % 2 == 0 else {}
    for style, config in (("plain", {}), ("modern", {**MODERN, **grouped}), ("post-norm", POST)):
        model = subject.model(large_weights=False, **config).train()
        learned = {name: one for name, one in model.named_parameters() if one.requires_grad}
        idle = dict.fromkeys(learned)
        # A factor of a parameter that starts at zero has no gradient in the first step.
        for _ in _steps(model, model, subject.tokens(4, 15), 2):
            for name, parameter in learned.items():
                if parameter.grad is None:
                    yield failed(f"{name} has no gradient ({style} model)")
                if not parameter.grad.isfinite().all():
                    yield failed(f"the gradient of {name} is not finite ({style} model)")
                if parameter.grad.any():
                    idle.pop(name, None)
        if idle:
            yield failed(f"the gradient of {next(iter(idle))} is zero ({style} model)")
    yield passed(f"{len([*model.encoding.parameters()])} of its own")


def train_in_two(subjects: Sequence[Subject]) -> list[str | None]:
    """Train each in the same two processes. Returns the fault of each; None where there is none."""
    loose = [one for one in registry.encodings.all().values() if not (one.builtin or one.package)]
    plugins = sorted({str(one.file) for one in loose if one.file.is_file()})
    requested = [(one.spec, one.kind, one.config) for one in subjects]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_train_all, (Path(folder), plugins, requested), PROCESSES, daemon=True)
        return json.loads((Path(folder) / FAULTS).read_text(encoding="utf-8"))


def _train_all(rank: int, folder: Path, plugins: list[str], requested: list[Any]) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback:
        # Otherwise gloo resolves the host's name, which fails on some machines.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    for file in plugins:
        registry.load_plugin(file)
    rendezvous = (folder / "rendezvous").as_uri()
    dist.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=PROCESSES, timeout=timedelta(seconds=120)
    )
    faults = []
    for spec, kind, config in requested:
        try:
            fault = _train(Subject(spec, kind, config=config), rank)
        except (Exception, SystemExit) as error:  # of a plugin
            fault = explained(error)
        of_ranks: list[str | None] = [None] * PROCESSES
        dist.all_gather_object(of_ranks, fault)
        faults.append(next(filter(None, of_ranks), None))
    if rank == 0:
        (folder / FAULTS).write_text(json.dumps(faults), encoding="utf-8")
    dist.destroy_process_group()


def _train(subject: Subject, rank: int) -> str | None:
    batch = some_tokens(4, 15)[rank::PROCESSES]
    torch.manual_seed(rank)  # each draws its own, where something is drawn
    model = subject.model(large_weights=False).train()
    # DDP raises if the step before left a parameter without a gradient.
    for _ in _steps(model, DistributedDataParallel(model), batch, STEPS):
        mine = torch.cat([p.detach().flatten() for p in model.parameters()])
        theirs = [torch.empty_like(mine) for _ in range(PROCESSES)]
        dist.all_gather(theirs, mine)
        if not torch.equal(*theirs):
            return f"weights differ by {(theirs[0] - theirs[1]).abs().max().item():.2g}"
    return None


@law(
    "two processes train one model",
    "DistributedDataParallel with find_unused_parameters=False keeps weights equal after each step.",
    trained,
    first_kind,
    needs=(GRADIENTS,),
    slow=True,
)
def two_processes(subject: Subject) -> Iterator[Outcome]:
    (fault,) = train_in_two([subject])
    done = passed(f"{PROCESSES} processes, {STEPS} steps, equal weights")
    yield done if fault is None else failed(fault)


LENGTHS = 129, 257, 513
SLOPE = 2.5
"""The most that the second doubling may add, in units of what the first added: 2 for linear growth, 4 for
quadratic."""


@law(
    "memory grows with the length, not its square",
    "In evaluation queries are computed in blocks, in training too where tables are large, and no tensor "
    "that is kept has an entry for each query and key.",
    only(
        f"its limit is below {LENGTHS[-1]} tokens",
        lambda subject: subject.stack.max_length is None or subject.stack.max_length >= LENGTHS[-1],
    ),
)
def memory_grows_linearly(subject: Subject) -> Iterator[Outcome]:
    # A small feed-forward, so that a table of scores dominates.
    model = subject.model(d_ff=8)

    def evaluate(tokens: Tensor) -> None:
        with torch.inference_mode():
            model.hidden(tokens)

    def train(tokens: Tensor) -> None:
        model.hidden(tokens).square().mean().backward()

    for what, run in (("", evaluate), ("in training ", train)):
        peaks = []
        # The smallest blocks, so that their tables are not taken for quadratic growth.
        with SMALLEST_BLOCKS, NO_TABLE_KEPT, NO_WEIGHTS_KEPT:
            for length in LENGTHS:
                with Allocated() as allocated:
                    run(subject.tokens(1, length))
                peaks.append(allocated.peak)
        first, second = peaks[1] - peaks[0], peaks[2] - peaks[1]
        sizes = what + ", ".join(f"{peak / 2**20:.1f}" for peak in peaks)
        at = f"{sizes} MiB at {', '.join(map(str, LENGTHS))} tokens; the second doubling adds, by the first,"
        yield within(second / max(first, 1), SLOPE, at)


class Allocated(TorchDispatchMode):
    """Counts the bytes of the tensors that operations return, while they live; `peak` is the maximum.

    Temporary memory inside an operation is not counted. Unlike the process's size it is reproducible.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for storage in (one.untyped_storage() for one in tree_leaves(result) if isinstance(one, Tensor)):
            if storage not in self._known:
                self._known.add(storage)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, storage.nbytes())
        return result

    def _free(self, size: int) -> None:
        self.now -= size
