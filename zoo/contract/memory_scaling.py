"""Long sequences can be evaluated: memory grows with the length, not its square."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo.contract.kernel_equivalence import changed
from zoo.contract.law import Finding, law, within
from zoo.contract.small_model import Subject
from zoo.models import kernels

LENGTHS = 256, 512, 1024
SLOPE = 2.5
"""By how much more the second doubling may add than the first: 2 is a line, 4 a square. What peaks at one
length need not be what peaks at the next (deberta comes to 2.4); a line with a square half as high at the end
lies above."""


def too_short(subject: Subject) -> str | None:
    limit = subject.stack.max_length
    return None if limit is None or limit >= LENGTHS[-1] else f"its limit is {limit} tokens"


@law(
    "memory grows with the length, not its square",
    "In evaluation queries are computed in blocks, and no tensor that is kept has an entry for each query "
    "and key.",
    too_short,
)
def memory_grows_linearly(subject: Subject) -> Finding:
    # A small feed-forward, so that a table of scores dominates.
    model = subject.model(d_ff=8)
    peaks = []
    # The smallest blocks, so that their tables are not taken for quadratic growth.
    with changed(kernels, BLOCK_ELEMENTS=1), torch.inference_mode():
        for length in LENGTHS:
            with Allocated() as allocated:
                model.hidden(subject.tokens(1, length))
            peaks.append(allocated.peak)
    first, second = peaks[1] - peaks[0], peaks[2] - peaks[1]
    sizes = ", ".join(f"{peak / 2**20:.1f}" for peak in peaks)
    at = f"{sizes} MiB at {', '.join(map(str, LENGTHS))} tokens; the second doubling adds, by the first,"
    return within(second / max(first, 1), SLOPE, at)


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
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._take, size)

    def _take(self, size: int) -> None:
        self.now -= size
