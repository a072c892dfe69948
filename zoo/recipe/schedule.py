"""The learning rate's schedule: warm-up, and what comes after it."""

from __future__ import annotations

import math

from zoo.recipe.schema import OptimizerConfig


def lr_factor(config: OptimizerConfig, step: int, max_steps: int) -> float:
    """The learning rate of a step (from 0) as a fraction of the highest.

    Linear warm-up; then, by `config.schedule`: cosine (Loshchilov and Hutter 2017, arXiv:1608.03983) or
    linear decay to `final_lr` at `max_steps`; constant; or wsd, constant up to the last `decay_fraction` of
    `max_steps` and from there linear decay to `final_lr` (Hu et al. 2024, arXiv:2404.06395, section 4; the
    linear form after Hägele et al. 2024, arXiv:2405.18392).
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    begin = config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "wsd":
        begin = max(begin, max_steps - max(1, round(config.decay_fraction * max_steps)))
    done = min(1.0, max(0, step - begin) / max(1, max_steps - begin))
    fall = 0.5 * (1 + math.cos(math.pi * done)) if config.schedule == "cosine" else 1 - done
    return config.final_lr + (1 - config.final_lr) * fall


def last_other_rate(config: OptimizerConfig, steps: int, one: int, other: int) -> int | None:
    """The last of the first `steps` steps (from 0) whose learning rate depends on which of two numbers is
    `max_steps`; None where none does."""
    if one == other:
        return None
    steps_back = reversed(range(steps))
    return next((at for at in steps_back if lr_factor(config, at, one) != lr_factor(config, at, other)), None)
