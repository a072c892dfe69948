"""Learning rate schedules after a linear warm-up, which all of them have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import Field

from zoo import registry
from zoo.recipe.fields import Fraction, Number
from zoo.recipe.sections import OptimizerConfig, construct
from zoo.registry import register


class Schedule:
    """A learning rate after its warm-up. The typed keywords of the constructor are keys of `optimizer`.

    A run may be made longer where the rates of its steps so far do not depend on `max_steps`.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""

    def factor(self, step: int, max_steps: int, warmup_steps: int) -> float:
        """The learning rate of a step (from 0) as a fraction of the highest.

        Args:
            step: at least `warmup_steps`.
            max_steps: optimizer steps of the run.
            warmup_steps: steps in which the rate rose to 1.
        """
        raise NotImplementedError


@register.schedule("constant")
class Constant(Schedule):
    """The highest learning rate to the end."""

    def factor(self, step: int, max_steps: int, warmup_steps: int) -> float:
        return 1.0


@register.schedule("linear")
class Linear(Schedule):
    """Falls linearly to the last step.

    Args:
        final_lr: learning rate at the last step, as a fraction of lr.
    """

    def __init__(self, *, final_lr: Fraction = 0.1):
        self.final_lr = final_lr

    def factor(self, step: int, max_steps: int, warmup_steps: int) -> float:
        done = min(1.0, max(0, step - warmup_steps) / max(1, max_steps - 1 - warmup_steps))
        return self.final_lr + (1 - self.final_lr) * self._left(done)

    def _left(self, done: float) -> float:
        """The remaining fraction of the fall after this fraction of its steps."""
        return 1 - done


@register.schedule("cosine")
class Cosine(Linear):
    """Falls to the last step as half a cosine."""

    paper = "Loshchilov and Hutter 2017, arXiv:1608.03983"

    def _left(self, done: float) -> float:
        return 0.5 * (1 + math.cos(math.pi * done))


@register.schedule("wsd")
class WarmupStableDecay(Linear):
    """Stays at the highest rate and falls linearly at the end alone, so that max_steps may change until then.

    The linear form is that of Hägele et al. 2024 (arXiv:2405.18392), where a decay of 10 to 20 % of the steps
    matches cosine.

    Args:
        decay_fraction: fraction of trainer.max_steps, at the end, over which the learning rate falls.
    """

    paper = "Hu et al. 2024, arXiv:2404.06395, section 4"

    def __init__(
        self, *, final_lr: Fraction = 0.1, decay_fraction: Annotated[Number, Field(gt=0, le=1)] = 0.2
    ):
        super().__init__(final_lr=final_lr)
        self.decay_fraction = decay_fraction

    def factor(self, step: int, max_steps: int, warmup_steps: int) -> float:
        stable_until = max_steps - max(1, round(self.decay_fraction * max_steps))
        return super().factor(step, max_steps, max(warmup_steps, stable_until - 1))


def schedule_of(config: OptimizerConfig, max_steps: int) -> Callable[[int], float]:
    """The learning rate of each step (from 0) as a fraction of the highest, the linear warm-up included."""
    schedule = construct(registry.schedules, config.schedule, config)

    def factor(step: int) -> float:
        if step < config.warmup_steps:
            return (step + 1) / config.warmup_steps
        return schedule.factor(step, max_steps, config.warmup_steps)

    return factor


def lr_factor(config: OptimizerConfig, step: int, max_steps: int) -> float:
    """The learning rate of one step (from 0) as a fraction of the highest."""
    return schedule_of(config, max_steps)(step)


def last_other_rate(config: OptimizerConfig, steps: int, one: int, other: int) -> int | None:
    """The last of the first `steps` steps (from 0) whose learning rate depends on which of two numbers is
    `max_steps`; None where none does."""
    if one == other:
        return None
    rate, other_rate = schedule_of(config, one), schedule_of(config, other)
    return next((step for step in reversed(range(steps)) if rate(step) != other_rate(step)), None)
