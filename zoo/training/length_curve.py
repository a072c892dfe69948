"""Scores at several lengths while a model is trained (`evaluate.during`)."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from zoo.data.source import DataSource
from zoo.evaluation.protocols.protocol import Execution, LengthPlan, build_protocol
from zoo.launch.team import alone
from zoo.training.callbacks import StepLog
from zoo.training.module import TaskModule


class LengthCurve(Callback):
    """Logs `lengths/MEASURE/LENGTH` every so many steps, by the first protocol of the recipe.

    The training is bitwise the same without it: torch is seeded before every batch (`SeededSteps`), and the
    model is not compiled for these lengths. Every process scores all targets. The time does not count as
    training time.
    """

    def __init__(self, source: DataSource, step_log: StepLog):
        self.source, self.step_log = source, step_log
        self.step = 0
        self.plans: list[LengthPlan] = []

    def on_train_start(self, trainer: pl.Trainer, module: TaskModule) -> None:
        self.step = trainer.global_step
        config = module.recipe.evaluate
        lengths = sorted(set(config.during.lengths or config.lengths or [module.recipe.data.sequence_length]))
        few = {"max_tokens": max(config.during.max_tokens, *lengths), "samples": config.during.samples}
        # Shares the weights.
        self.view = copy.copy(module.task)
        self.view.recipe = module.recipe.model_copy(update={"evaluate": config.model_copy(update=few)})
        self.view.model.eval()  # some encodings have another end while they are trained
        plans = build_protocol(config.protocols[0], self.view.recipe.evaluate).plan(
            self.view, self.source, lengths
        )
        module.train()
        self.plans = [plan for plan in plans[0].lengths if plan.score]

    def on_train_batch_end(self, trainer: pl.Trainer, module: TaskModule, outputs: Any, *_: Any) -> None:
        step = trainer.global_step
        if step == self.step or step % module.recipe.evaluate.during.every_n_steps:
            return
        self.step, began = step, time.perf_counter()
        self.view.model.eval()
        # Not in inference mode: an encoding may keep a table for the next training step.
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            values = dict(self._scores(module.device))
        module.train()
        self.step_log.began += time.perf_counter() - began
        for logger in trainer.loggers:
            logger.log_metrics(values, step=step)

    def _scores(self, device: torch.device) -> Iterator[tuple[str, float]]:
        for plan in self.plans:
            scored = plan.score(Execution(alone(device), lambda tokens: None))
            for numbers in scored if isinstance(scored, list) else [{"length": plan.length} | scored]:
                named = (name.removesuffix("_low") for name in numbers if name.endswith("_low"))
                measure = next(one for one in ("accuracy", "loss_nats", *named) if one in numbers)
                yield f"lengths/{measure}/{numbers['length']}", numbers[measure]
