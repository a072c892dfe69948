"""Training: a gradient for every parameter, in one process and in two."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from zoo.contract import processes
from zoo.contract.law import Finding, broken, first_kind, held, law, trained
from zoo.contract.small_model import Subject

GRADIENTS = "every parameter has a gradient"
STYLES = {
    "plain": {},
    "modern": {
        "norm": "rmsnorm",
        "activation": "swiglu",
        "qk_norm": True,
        "tie_embeddings": False,
    },
}


@law(
    GRADIENTS,
    "Every parameter has a finite gradient, which is nonzero in the first or the second step.",
    trained,
)
def every_parameter(subject: Subject) -> Finding:
    count = 0
    heads = subject.size().num_heads
    for style, config in STYLES.items():
        shared = {"num_kv_heads": heads // 2} if style == "modern" and heads % 2 == 0 else {}
        model = subject.model(large_weights=False, **config, **shared).train()
        limit = model.encoding.max_length
        row = subject.tokens(4, 16 if limit is None else min(16, limit))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        idle = dict.fromkeys(name for name, _ in model.named_parameters())
        for _ in range(2):  # a factor of a parameter that starts at zero has no gradient in the first step
            optimizer.zero_grad()
            F.cross_entropy(model(row).flatten(0, 1), row.roll(-1, 1).flatten()).backward()
            for name, parameter in model.named_parameters():
                if parameter.grad is None:
                    return broken(f"{name} has no gradient ({style} model)")
                if not parameter.grad.isfinite().all():
                    return broken(f"the gradient of {name} is not finite ({style} model)")
                if parameter.grad.any():
                    idle.pop(name, None)
            optimizer.step()
        if idle:
            return broken(f"the gradient of {next(iter(idle))} is zero ({style} model)")
        count = len(list(model.encoding.parameters()))
    return held(f"{count} of its own")


def _by_two(subjects: Sequence[Subject]) -> list[Finding]:
    faults = processes.train_in_two(subjects)
    return [held(processes.DONE) if fault is None else broken(fault) for fault in faults]


@law(
    "two processes train one model",
    "DistributedDataParallel, which is not told to look for unused parameters, keeps weights equal after "
    "each step. Sharded with FSDP, weights are the same to 1e-5.",
    trained,
    first_kind,
    needs=(GRADIENTS,),
    slow=True,
    together=_by_two,
)
def two_processes(subject: Subject) -> Finding:
    (finding,) = _by_two([subject])
    return finding
