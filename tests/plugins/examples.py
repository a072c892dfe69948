"""Plugins of each kind but encodings, as a user may write them."""

DATASET = """
import zoo
from zoo.recipe.fields import AtLeastTwo


@zoo.register.dataset("modular_sum")
class ModularSum(zoo.Algorithmic):
    '''Say the sum of random numbers, modulo their range.

    Args:
        modulus: range of the numbers.
    '''

    def __init__(self, *, modulus: AtLeastTwo = 7):
        self.symbols = modulus

    def lengths(self, size):
        return size, 1

    def draw(self, size, chance):
        numbers = chance.numbers(size, self.symbols)
        return numbers, [sum(numbers) % self.symbols]
"""

TASK = """
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field

import zoo
from zoo.tasks.language_modelling import LanguageModelling


@zoo.register.task("smoothed")
class Smoothed(LanguageModelling):
    '''Predict the next token, with smoothed labels.

    Args:
        smoothing: share of the target's probability that goes to all tokens.
    '''

    def __init__(self, recipe, vocab_size, *, smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1):
        super().__init__(recipe, vocab_size)
        self.smoothing = smoothing

    def loss(self, batch):
        logits = self.model(batch["tokens"]).flatten(0, 1)
        return F.cross_entropy(logits, batch["targets"].flatten(), label_smoothing=self.smoothing)
"""

OPTIMIZER = """
import torch

import zoo


@zoo.register.optimizer("signed")
class Signed(torch.optim.Optimizer):
    '''Steps by the sign of an average of gradients.

    Args:
        decay: of the average.
    '''

    def __init__(self, params, *, lr: float, decay: float = 0.9):
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    average = state.setdefault("average", torch.zeros_like(p))
                    state["count"] = state.get("count", 0) + 1
                    average.lerp_(p.grad, 1 - group["decay"])
                    p.add_(average.sign(), alpha=-group["lr"])
        return loss
"""

SCHEDULE = """
import zoo


@zoo.register.schedule("inverse_root")
class InverseRoot(zoo.Schedule):
    '''Falls with the square root of the step, to a floor.

    Args:
        floor: least learning rate, as a fraction of the highest.
    '''

    def __init__(self, *, floor: float = 0.01):
        self.floor = floor

    def factor(self, step, max_steps, warmup_steps):
        return max(self.floor, ((warmup_steps + 1) / (step + 1)) ** 0.5)
"""

PROTOCOL = """
import numpy as np

import zoo
from zoo.evaluation.protocols.text import WholeText, Windows
from zoo.recipe.fields import Positive


@zoo.register.protocol("window_ends")
class WindowEnds(WholeText):
    '''The last tokens of windows side by side.

    Args:
        ends: tokens scored at the end of each window.
    '''

    unit, needs = "documents", "text"
    explanation = "Windows side by side, of which only the last tokens are scored."

    def __init__(self, *, ends: Positive = 2):
        self.ends = ends

    def parameters(self, config):
        return {"ends": self.ends}

    def windows(self, config, size, length):
        starts = np.arange(0, size - length + 1, length)
        return Windows(starts, starts + length, starts + length - min(self.ends, length))
"""

KINDS = {
    "dataset": (DATASET, {"data": {"name": "modular_sum", "modulus": 5}}, "data.modulus"),
    "task": (TASK, {"task": {"name": "smoothed", "smoothing": 0.2}}, "task.smoothing"),
    "protocol": (PROTOCOL, {"evaluate": {"protocols": ["window_ends"], "ends": 3}}, "evaluate.ends"),
    "optimizer": (OPTIMIZER, {"optimizer": {"name": "signed", "decay": 0.8}}, "optimizer.decay"),
    "schedule": (
        SCHEDULE, {"optimizer": {"schedule": "inverse_root", "floor": 0.05}}, "optimizer.floor",
    ),
}  # fmt: skip
"""The source of each kind, its part of a recipe, and the key of its option."""
