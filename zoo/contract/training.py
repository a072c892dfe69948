"""Training: a gradient for every parameter, in one process and in two."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F

from zoo.contract import processes
from zoo.contract.law import Finding, broken, first_kind, held, law, trained
from zoo.contract.subject import Subject

STYLES = {
    "plain": {},
    "modern": {
        "norm": "rmsnorm",
        "activation": "swiglu",
        "qk_norm": True,
        "tie_embeddings": False,
        "num_kv_heads": 3,
    },
}


@law("a gradient to every parameter", "Every parameter has a finite gradient that is not zero.", trained)
def every_parameter(subject: Subject) -> Finding:
    count = 0
    for style, config in STYLES.items():
        model, row = subject.model(lively=False, **config).train(), subject.tokens(4, 16)
        F.cross_entropy(model(row).flatten(0, 1), row.roll(-1, 1).flatten()).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is None or not parameter.grad.any():
                return broken(f"{name} has no gradient ({style} model)")
            if not parameter.grad.isfinite().all():
                return broken(f"the gradient of {name} is not finite ({style} model)")
        count = len(list(model.encoding.parameters()))
    return held(f"{count} of its own")


def _by_two(subjects: Sequence[Subject]) -> list[Finding]:
    faults = processes.train_in_two(subjects)
    return [held(processes.DONE) if fault is None else broken(fault) for fault in faults]


@law(
    "two processes train one model",
    "DistributedDataParallel without a search for unused parameters: equal weights after each step. "
    "Shared out in shards (FSDP), the same weights to 1e-5.",
    trained,
    first_kind,
    slow=True,
    together=_by_two,
)
def two_processes(subject: Subject) -> Finding:
    (finding,) = _by_two([subject])
    return finding
