"""A side of the benchmark: a training in a process of its own, that makes some steps when it is its turn.

Between its turns a side sleeps, with its model in memory. The zoo's is `zoo fit` as it is, with Lightning,
its callbacks and its log, on a dataset that waits for its turn before it hands out a batch; all others are
trained by the loop in `bare.py`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from tqdm import tqdm

from peers.bare import Size, random_tokens, train
from peers.libraries import BUILDERS
from zoo.data import Dataset
from zoo.data.blocks import Batched
from zoo.data.source import DataSource
from zoo.memory import freed_memory_kept, peak_memory_mb, restart_peak_memory
from zoo.recipe import Recipe, resolve
from zoo.recipe.fields import Positive
from zoo.registry import register
from zoo.reports.fit import fit
from zoo.runs.folder import stored_recipe
from zoo.tasks import build_task

WARM_UP = 2
MODES = ("default", "fp32", "bf16", "fp32 compiled", "bf16 compiled")
TINY = Size(32, 1, 2, 16, 64, 1)
NEVER = 1 << 30

# Imported once and forked from: a side then starts in less than a second.
IMPORTED = (
    "transformers", "transformers.models.llama.modeling_llama", "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.bloom.modeling_bloom", "transformers.models.t5.modeling_t5", "x_transformers",
    "torch._dynamo", "torch.utils.tensorboard", "zoo.training.fit", "zoo.tasks.language_modelling",
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """Who trains with which encoding, and how.

    Attributes:
        library: as in `BUILDERS`, or "zoo".
        mode: "default", what its user gets who sets nothing; or a precision, and whether it is compiled.
    """

    library: str
    encoding: str
    mode: str = "default"

    def __str__(self) -> str:
        return f"{self.library} {self.encoding}, {self.mode}"


class Turns:
    """The side's end of the pipe: `before_step` returns when a step is to be made."""

    def __init__(self, pipe: Connection, device: torch.device):
        self.pipe, self.device = pipe, device
        self.describe: Callable[[], dict[str, Any]] = dict
        self.steps = self.left = WARM_UP
        self.memory = self.began = 0.0

    def begin(self) -> None:
        """Count memory and time from here, without the memory that the process holds already."""
        restart_peak_memory(self.device)
        self.memory = peak_memory_mb(self.device)
        self.began = time.perf_counter()

    def before_step(self) -> None:
        if self.left == 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            seconds = (time.perf_counter() - self.began) / self.steps
            added = peak_memory_mb(self.device) - self.memory
            self.pipe.send({"seconds": seconds, "memory_mb": added, **self.describe()})
            self.steps = self.left = self._next_turn()
            # Compiling is over by now, and takes more memory than a step.
            restart_peak_memory(self.device)
            self.began = time.perf_counter()
        self.left -= 1

    def _next_turn(self) -> int:
        with suppress(EOFError):
            if steps := self.pipe.recv():
                return steps
        os._exit(0)  # `fit` would save and evaluate


def loop(side: Side, size: Size, turns: Turns) -> None:
    """Train a model of a library without end."""
    torch.manual_seed(0)
    # What torch and the library set up at the first step of any model.
    model, loss_of = BUILDERS[side.library, side.encoding](TINY, False)
    next(train(model, loss_of, random_tokens(TINY, torch.device("cpu")), bf16=False))
    turns.begin()
    model, loss_of = BUILDERS[side.library, side.encoding](size, side.mode != "default")
    model.to(turns.device).train()
    if side.mode.endswith("compiled"):
        model.compile()
    about: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters())}
    about["used"] = "fp32" if side.mode == "default" else side.mode
    turns.describe = lambda: about
    # The allocator's setting is not what a library's users get, but all can have it.
    kept = side.mode != "default" or side.library == "bare loop"
    with freed_memory_kept() if kept else nullcontext():
        turns.before_step()
        for loss in train(model, loss_of, random_tokens(size, turns.device), side.mode.startswith("bf16")):
            about.setdefault("loss", loss.item())
            turns.before_step()


class RandomText(Batched):
    """Random tokens in place of a text; a batch is made when its turn comes."""

    def __init__(self, size: Size, turns: Turns | None):
        self.tokens, self.turns, self.batch_size = random_tokens(size, torch.device("cpu")), turns, size.batch

    def __len__(self) -> int:
        return self.batch_size if self.turns is None else 1 << 20

    def batch(self, indices: Sequence[int]) -> dict[str, Tensor]:
        if self.turns is not None:
            self.turns.before_step()
        tokens = next(self.tokens)
        return {"tokens": tokens[:, :-1].contiguous(), "targets": tokens[:, 1:].contiguous()}


class RandomSource(DataSource):
    fingerprint: ClassVar[dict[str, str]] = {"corpus": "random", "tokenizer": ""}

    def dataset(self, split: str) -> RandomText:
        data = self.recipe.data
        size = replace(TINY, length=data.sequence_length, vocabulary=self.vocab_size, batch=data.batch_size)
        turns = RandomTokens.turns if split == "train" else None
        return RandomText(size, turns)


@register.dataset("random_tokens")
class RandomTokens(Dataset):
    """Tokens without meaning, for a benchmark.

    Args:
        vocabulary: number of token ids.
    """

    gives = "text"
    turns: ClassVar[Turns | None] = None

    def __init__(self, *, vocabulary: Positive):
        self.vocabulary = vocabulary

    @property
    def vocab_size(self) -> int:
        return self.vocabulary

    def open(self, recipe: Recipe) -> RandomSource:
        return RandomSource(recipe, self.gives, self.vocab_size)


def recipe_of(side: Side, size: Size, device: torch.device, steps: int) -> Recipe:
    """The recipe of a run of the zoo; in its default mode it says nothing of precision or compiling."""
    model = {"d_model": size.width, "num_layers": size.layers, "num_heads": size.heads}
    data = {"sequence_length": size.length, "batch_size": size.batch, "vocabulary": size.vocabulary}
    recipe: dict[str, Any] = {
        "name": "benchmark",
        "model": {"kind": "decoder", "encoding": side.encoding, "init_std": 0.02, **model},
        "data": {"name": "random_tokens", **data},
        "optimizer": {"lr": 1e-4},
        "trainer": {"max_steps": steps, "accelerator": device.type},
        "checkpoint": {"every_n_steps": NEVER},
        "evaluate": {"lengths": []},
    }
    if side.mode != "default":
        precision, compiled = side.mode[:4], side.mode.endswith("compiled")
        recipe["trainer"]["precision"] = {"fp32": "32-true", "bf16": "bf16-mixed"}[precision]
        recipe["compile"] = compiled
    return resolve(recipe)


def zoo_fit(side: Side, size: Size, turns: Turns, folder: Path, steps: int) -> None:
    """`zoo fit` of a run of so many steps, of which those are made that are asked for."""
    fit(
        recipe_of(replace(side, mode="fp32"), TINY, turns.device, 1), folder / "tiny"
    )  # imports modules before the timing
    turns.begin()
    recipe = recipe_of(side, size, turns.device, steps)
    task = build_task(recipe, size.vocabulary)
    tokens = next(random_tokens(size, torch.device("cpu")))
    about = {
        "parameters": sum(p.numel() for p in task.model.parameters()),
        "loss": task.loss({"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}).item(),
    }
    del task
    turns.describe = lambda: {**about, "used": mode_used(folder / "run")}
    RandomTokens.turns = turns
    fit(recipe, folder / "run")


def mode_used(run: Path) -> str:
    """Precision and compiling in the resolved recipe of a run."""
    used = stored_recipe(run)
    precision = str(used["trainer"]["precision"]).removesuffix("-mixed").removesuffix("-true")
    compiled = used["compile"] is True
    return {"32": "fp32"}.get(precision, precision) + (" compiled" if compiled else "")


class Running:
    """A side's process, seen from the benchmark. Close it."""

    def __init__(self, side: Side, size: Size, device: torch.device, steps: int):
        self.side, self.batch_tokens = side, size.batch * size.length
        # A process that has used a GPU cannot be forked.
        context = multiprocessing.get_context("forkserver" if device.type == "cpu" else "spawn")
        if device.type == "cpu":
            context.set_forkserver_preload(list(IMPORTED))
        self.folder = tempfile.TemporaryDirectory()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_run, args=(side, size, device, theirs, self.folder.name, steps)
        )
        self.process.start()
        theirs.close()

    def answer(self) -> dict[str, Any]:
        """Seconds of a step, MiB at the peak, parameters, first loss and mode of the last turn.

        Raises RuntimeError where the side has failed.
        """
        try:
            answer = self.pipe.recv()
        except EOFError:
            raise RuntimeError("its process was killed") from None
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def turn(self, steps: int) -> dict[str, Any]:
        self.pipe.send(steps)
        return self.answer()

    def close(self) -> None:
        with suppress(OSError):  # over already
            os.killpg(self.process.pid, signal.SIGKILL)  # with the processes that compile
        self.process.join()
        self.folder.cleanup()


def _run(side: Side, size: Size, device: torch.device, pipe: Connection, folder: str, steps: int) -> None:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a process that is killed leaves behind
    try:
        turns = Turns(pipe, device)
        if side.library == "zoo":
            zoo_fit(side, size, turns, Path(folder), steps)
        else:
            loop(side, size, turns)
    except Exception as error:
        pipe.send({"error": f"{type(error).__name__}: {str(error).strip()[:300]}"})
