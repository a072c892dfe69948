"""Prove the project on a GPU with one command and no network: correctness, speed, memory, whole runs.

    python scripts/gpu_check.py --part 1             what matters most, below 5 minutes on one H100
    python scripts/gpu_check.py --part 2             the rest, below 5 minutes
    python scripts/gpu_check.py                      both parts
    python scripts/gpu_check.py --only 'kernels/*'   some items again
    python scripts/gpu_check.py --device cpu --quick the same at small sizes, to try this script

It writes a table and a JSON file (scripts/results/gpu/DEVICE.md, .json) after each item, and keeps the rows
of items that did not run. Items that have not passed on any GPU run first. The exit code is 0 if all items
that check correctness passed, 1 if not, 2 if a package is missing. Items are named PART/NAME:
docs/performance.md describes the parts.

Items run in child processes. An error that breaks the CUDA context ends one item; a new process runs the
next. Items that measure speed run alone. The others mostly compile, and several run at once.
"""

# ruff: noqa: E402 - missing packages are reported before the imports

from __future__ import annotations

import argparse
import fnmatch
import gc
import importlib.util
import itertools
import json
import logging
import math
import os
import platform
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[1]
FOUND = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

# Nothing runs without these: pydantic reads recipes, and the configuration of a model is part of a recipe.
NEEDED = ("torch", "lightning", "torchmetrics", "pydantic", "yaml", "numpy", "scipy", "pyarrow", "tokenizers",
          "filelock", "tqdm", "matplotlib", "plotly")  # fmt: skip
# Two items use transformers and flash_attn; the others belong to commands that are not tried here.
OPTIONAL = ("transformers", "flash_attn", "datasets", "pandas", "tensorboard", "safetensors")
MISSING = [name for name in (*NEEDED, *OPTIONAL) if importlib.util.find_spec(name) is None]
if NEEDED_HERE := [name for name in NEEDED if name in MISSING]:
    print(f"missing: {', '.join(NEEDED_HERE)}; without a network, bring wheels that `pip download` fetched")
    raise SystemExit(2)

import torch
from torch._dynamo.utils import counters
from torch._inductor import config as inductor

from benchmark_peers import SIZES, matrix_rate, products
from peers.bare import train
from peers.libraries import BUILDERS
from peers.sides import random_tokens
from zoo import registry
from zoo.contract import LAWS, subject
from zoo.contract.causality import decoded
from zoo.contract.law import examine
from zoo.contract.subject import keep_of, small_model, some_tokens, subjects_of
from zoo.files import atomic_write
from zoo.models.plans import choose, flex
from zoo.models.transformer import Decoder
from zoo.recipe.schema import ModelConfig

OF_LAWS = ("none", "rope", "alibi", "t5", "fire", "fox", "path")
OF_TRAINING = ("none", "rope", "alibi", "t5", "kerple", "fire", "fox", "path")
PEERS = ("llama-sdpa", "llama-flash")
OF_QUICK = (*OF_LAWS, "cope")
SIZE = {"d_model": 64, "num_heads": 4}
"""Size of small models: heads 16 wide, the least that FlexAttention takes on a GPU."""
AT = {
    "cuda": SimpleNamespace(
        lengths=(128, 1000, 4096), window=100, cached=(63, 64, 65, 128),
        recompiled=(130, 257, 500, 777, 1024, 1500, 2048, 2500, 3001, 4096, 6000, 8192),
        trained="124M", compiled={}, long=(8192, 32768), steps=20,
        model={"d_model": 128, "num_layers": 3},
        data={"sequence_length": 128, "batch_size": 32, "documents": 400, "words": 3000},
        # 524,288 tokens of width 2,048: some 60 GiB of activations in each layer.
        too_large=("model.d_model=2048", "model.num_layers=8", "data.batch_size=4096"), memory=None,
    ),
    "cpu": SimpleNamespace(
        lengths=(16, 65, 130), window=7, cached=(15, 16, 17),
        recompiled=(33, 40, 64, 65, 90, 100, 128, 129, 150, 160, 177, 200),
        trained="tiny", compiled=None, long=(128, 256), steps=2,
        model={"d_model": 32, "num_layers": 1},
        data={"sequence_length": 16, "batch_size": 8, "documents": 100, "words": 1000},
        # 65,536 tokens of width 512, tensors of 128 to 512 MiB, in a process that may hold 3 GiB.
        too_large=("model.d_model=512", "model.num_layers=4", "data.batch_size=4096"), memory=3 * 2**30,
    ),
}  # fmt: skip
ITEM_SECONDS, SHORTER = 240, {"autotune": 100, "long": 60}
"""An item that takes longer is stopped and counts as failed."""
RESULT = "result of an item: "
"""Beginning of the line by which a child process reports one."""
RESULTS = ROOT / "scripts" / "results" / "gpu"


class Failed(Exception):
    """A check that did not pass, with its numbers."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise Failed(message)


def relative_error(actual: Any, exact: Any) -> float:
    """The norm of the difference by the norm of the exact values, in float64."""
    return ((actual.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-12)).item()


def clock(device: str) -> float:
    """The time in seconds, once the device has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def environment(name: str, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"device": "cpu", "torch": torch.__version__, "python": platform.python_version()}
    if options.device == "cuda":
        about = torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found |= {"device": about.name, "gpus": torch.cuda.device_count(), "cuda": torch.version.cuda}
        found |= {"capability": f"{about.major}.{about.minor}", "memory_gib": about.total_memory >> 30}
        found["driver"] = subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0]
    found["bf16_tflops"] = round(matrix_rate(torch.bfloat16, torch.device(options.device)) / 1e12, 3)
    source = torch.ones(2**28 if options.device == "cuda" else 2**22, device=options.device)
    target, seconds = torch.empty_like(source), []
    for _ in range(5):
        began = clock(options.device)
        target.copy_(source)
        seconds.append(clock(options.device) - began)
    return {**found, "copy_gb_per_s": round(8 * source.numel() / min(seconds) / 1e9, 1)}


# Correctness

CASES = (
    # Which length, mask, grouped heads, precision: every pair of two values occurs.
    (0, "causal", False, "fp32"), (0, "window", True, "bf16"), (0, "padding", True, "fp32"),
    (1, "causal", True, "bf16"), (1, "window", False, "fp32"), (1, "padding", False, "bf16"),
    (2, "causal", True, "fp32"), (2, "window", False, "bf16"), (2, "padding", True, "bf16"),
)  # fmt: skip
CLOSE, BF16_RATIO, BF16_FLOOR = 1e-4, 2.0, 1e-3
"""Largest relative error in fp32; in bf16 the largest error by that of the reference kernel, which counts as
at least the floor."""
LONGER = {"randomized": {"max_position": 8192}}
"""Options without which an encoding does not take 4,096 tokens."""


def spec_of(name: str) -> Any:
    """An encoding with its defaults; one that wraps others around the first that it takes."""
    spec = subjects_of(registry.encodings.describe(name))[0][0].spec
    return {**spec, **LONGER[name]} if name in LONGER else spec


def kernels(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The relative errors to float64 of the output, of the gradients of the encoding, and of all others.

    In fp32 each is at most CLOSE, or twice the reference kernel's. In bf16 the root mean square over the
    cases is at most twice the reference kernel's.
    """
    worst, squares = (0.0, ""), {}
    if options.device == "cuda" and name in ("t5", "fire", "dpb", "kerple"):
        # Where the gradient of a learned bias is wrong, `auto` is the reference kernel.
        for dtype, width in itertools.product((torch.float32, torch.bfloat16), (16, 64, 128, 256)):
            agrees = flex.bias_gradient_agrees(torch.device(options.device), dtype, width)
            require(agrees, f"models/kernels/bias_gradient.py is wrong in {dtype}, heads of {width}")
    for index, mask, grouped, precision in CASES:
        torch.compiler.reset()  # each case compiles FlexAttention anew, far from the recompile limit
        length = AT[options.device].lengths[index]
        case = name, options.device, length, mask, grouped, precision
        exact = one_pass(*case, "reference", exact=True)
        reference, chosen = one_pass(*case, "reference"), one_pass(*case, "auto")
        for what, expected in exact.items():
            own, other = (relative_error(found[what], expected) for found in (chosen, reference))
            where = f"{what}, {length} tokens, {mask}{', grouped heads' * grouped}, {precision}"
            require(math.isfinite(own), f"{where}: not finite")
            if precision == "bf16":
                squares.setdefault(what, []).append((own**2, other**2))
            else:
                message = f"{where}: error {own:.1e}, that of the reference kernel {other:.1e}"
                require(own <= max(CLOSE, 2 * other), message)
                worst = max(worst, (own, where))
    ratios, errors = {}, {}
    for what, pairs in squares.items():
        own, other = (math.sqrt(sum(some) / len(pairs)) for some in zip(*pairs, strict=True))
        ratios[what], errors[what] = round(own / max(other, BF16_FLOOR), 3), float(f"{own:.2g}")
    message = f"bf16 errors {errors}, by those of the reference kernel: {ratios}"
    require(max(ratios.values()) <= BF16_RATIO, message)
    return {"fp32_worst": worst[0], "at": worst[1], "bf16_ratio": ratios, "bf16_error": errors}


def one_pass(
    name: str, device: str, length: int, mask: str, grouped: bool, precision: str, kernel: str, exact=False
) -> dict[str, Any]:
    """Logits and gradients of a small model in one case; `exact` computes in float64."""
    at = AT[device]
    # Weights that make attention sharp show every fault of a hook; in bf16 they would multiply the rounding.
    model = small_model(
        spec_of(name), **SIZE, num_kv_heads=2 if grouped else None, kernel=kernel, length=at.lengths[-1],
        window=at.window if mask == "window" else None, large_weights=precision == "fp32",
    ).to(device)  # fmt: skip
    model = model.double() if exact else model
    tokens = some_tokens(2, length + 1).to(device)
    keep = keep_of((0, 5), length).to(device) if mask == "padding" else None
    with ExitStack() as stack:
        if kernel == "reference" and length <= at.lengths[1]:
            # One table for all queries; longer sequences are computed in blocks by the reference kernel too.
            plain = {"MOST_KEPT_ELEMENTS": 2**40, "BLOCK_ROWS": 2**20}
            stack.enter_context(mock.patch.multiple(choose, **plain))
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16" and not exact):
            logits = model(tokens[:, :-1], keep)
        logits, targets = logits if exact else logits.float(), tokens[:, 1:]
        logits, targets = (x.flatten(0, 1) if keep is None else x[keep] for x in (logits, targets))
        torch.nn.functional.cross_entropy(logits, targets).backward()
    found = {"output": [logits.detach()], "encoding": [], "weights": []}
    for of, parameter in model.named_parameters():
        if parameter.grad is not None:
            found["encoding" if of.startswith("encoding.") else "weights"].append(parameter.grad)
    groups = {what: torch.cat([x.flatten() for x in some]) for what, some in found.items() if some}
    return {what: values for what, values in groups.items() if not exact or values.norm() > 1e-9}


def decoding(name: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """Token by token, and two tokens after a cache of some lengths, against one pass over all tokens."""
    torch.compiler.reset()
    cached, worst = AT[options.device].cached, 0.0
    model = small_model(spec_of(name), **SIZE, length=cached[-1] + 2).to(options.device)
    limit = model.encoding.max_cached_length
    cases = [(cached[-2], 1), *((n + 2, [n, 1, 1]) for n in cached)]
    cases = [(length, parts) for length, parts in cases if limit is None or length <= limit]
    for length, parts in cases:
        tokens = some_tokens(2, length).to(options.device)
        with torch.no_grad():
            error = relative_error(decoded(model, tokens, parts), model(tokens))
        require(error < CLOSE, f"{length} tokens in parts of {parts}: {error:.1e}")
        worst = max(worst, error)
    return {"worst": worst, "cases": len(cases)} if cases else None  # some take no cache


def recompilation(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Evaluation by FlexAttention at twelve lengths, against the reference kernel.

    Beyond the limit of recompilations torch computes it uncompiled, which writes the table of scores. On a
    CPU graphs are counted without generating code, which fails there for dynamic lengths.
    """
    torch.compiler.reset()
    counters.clear()
    device, lengths, warnings, worst, used = options.device, AT[options.device].recompiled, [], 0.0, 0
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("torch._dynamo").addHandler(handler)
    compiled = partial(torch.compile, backend="inductor" if device == "cuda" else "eager")
    models = [small_model(name, "decoder", **SIZE, kernel=kernel, length=lengths[-1]).to(device)
              for kernel in ("flex", "reference")]  # fmt: skip
    with mock.patch.object(flex, "_compiled_alone", lru_cache(compiled)), torch.inference_mode():
        for length in lengths:
            tokens = some_tokens(1, length).to(device)
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            output = models[0](tokens)
            if device == "cuda":
                used = torch.cuda.max_memory_allocated() - before
            worst = max(worst, relative_error(output, models[1](tokens)))
    logging.getLogger("torch._dynamo").removeHandler(handler)
    table = 4 * SIZE["num_heads"] * lengths[-1] ** 2  # scores in float32
    found = {"lengths": len(lengths), "graphs": counters["stats"]["unique_graphs"], "worst": worst}
    found["memory_by_table"] = round(used / table, 3)
    reached = [text for text in warnings if "recompile_limit" in text]
    require(not reached, f"the limit of recompilations was reached: {found} {reached[:1]}")
    require(worst < CLOSE, f"differs from the reference kernel: {found}")
    require(used < table / 2, f"as much memory as the table of scores: {found}")
    return found


NOT_ON_A_GPU = ("two_processes", "built_on_meta", "memory_grows_linearly")
"""Laws that train in processes on a CPU, move a model to a CPU, or count the memory of operations."""


def laws(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Models and tokens are drawn on the CPU, as everywhere, and moved; the rest is made on the device."""
    torch.compiler.reset()

    def moved(make):
        def made(*of, **given):
            with torch.device("cpu"):
                return make(*of, **given).to(options.device)

        return made

    left_out = [law for law in LAWS if law.slow] if options.device == "cpu" else []
    left_out += [law for law in LAWS if law.trial.__name__ in NOT_ON_A_GPU]
    # torch.compile does not trace with a default device; this law creates no tensors of its own.
    compiled = [law for law in LAWS if law.trial.__name__ == "one_graph" and law not in left_out]
    with (
        mock.patch.object(subject, "small_model", moved(subject.small_model)),
        mock.patch.object(subject, "some_tokens", moved(subject.some_tokens)),
    ):
        verdicts = examine(subject.subjects_with(name), compiled)
        with torch.device(options.device):
            others = [law for law in LAWS if law not in (*left_out, *compiled)]
            verdicts += examine(subject.subjects_with(name), others)
    broken = [f"{v.law.name}: {finding.numbers} ({one})" for v in verdicts for one, finding in v.failures]
    require(not broken, "; ".join(broken))
    return {"laws": sum(bool(verdict.findings) for verdict in verdicts), "of": len(LAWS)}


# Whole runs


def start(folder: Path, options: argparse.Namespace, *arguments: str) -> subprocess.Popen:
    """A command of the zoo in a process group of its own; its text goes into log.txt."""

    def bound() -> None:
        if most := AT[options.device].memory:
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *FOUND])}
    environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # deterministic algorithms need it
    with (folder / "log.txt").open("w") as log:
        command = [sys.executable, "-m", "zoo", *arguments]
        return subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=log, start_new_session=True, preexec_fn=bound)  # fmt: skip


def kill(process: subprocess.Popen) -> None:
    """SIGKILL to a process and to all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(name: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """A check of `zoo fit` and `zoo evaluate` as commands, in a folder of its own."""
    if name == "ddp" and (options.device == "cpu" or torch.cuda.device_count() < 2):
        return None
    made, given = recipe(options), tempfile.TemporaryDirectory()
    folder = Path(given.name)
    (folder / "gpu_check.yaml").write_text(json.dumps(made))  # JSON is YAML

    def zoo(*arguments: str, code: int = 0) -> str:
        process = start(folder, options, *arguments)
        try:
            got = process.wait(ITEM_SECONDS)
        finally:
            kill(process)
        text = (folder / "log.txt").read_text(errors="replace").strip()
        require(got == code, f"zoo {shlex.join(arguments)} ended with {got}: {text[-800:]}")
        return text

    def fit(out: str, *sets: str) -> list[str]:
        return ["fit", "gpu_check.yaml", "--out", out, *(part for one in sets for part in ("--set", one))]

    with given:
        if name in ("resume", "resume-deterministic"):
            sets = ["trainer.deterministic=true"] if name == "resume-deterministic" else []
            zoo(*fit("whole", *sets))
            saved = folder / "killed" / "checkpoints" / "last.ckpt"
            process = start(folder, options, *fit("killed", *sets))
            while process.poll() is None and not saved.exists():
                time.sleep(0.01)
            kill(process)
            process.wait()
            step = state_of(folder / "killed")[0]
            require(step < made["trainer"]["max_steps"], "the run was over before it was killed")
            zoo(*fit("killed", *sets), "--resume")
            same = compare(folder / "whole", folder / "killed", 0.0 if sets else 1e-2)
            return {"killed_after": step, **same}
        if name == "evaluate":
            zoo(*fit("run"))
            lengths = [made["data"]["sequence_length"] * 2**i for i in range(5)]
            zoo("evaluate", "run", "--lengths", ",".join(map(str, lengths)))
            rows = json.loads((folder / "run" / "evaluation" / "lengths.json").read_text())
            losses = {row["length"]: round(row.get("loss_nats", math.nan), 3) for row in rows}
            require([*losses] == lengths and all(map(math.isfinite, losses.values())), f"{losses}")
            return {"loss_nats": losses}
        if name == "out-of-memory":
            text = zoo(*fit("run", *AT[options.device].too_large), code=1)
            require("out of memory: raise trainer.accumulate_grad_batches" in text, text[-800:])
            return {"message": text.splitlines()[-1]}
        if name == "nan":
            text = zoo(*fit("run", "optimizer.lr=1e30", "optimizer.warmup_steps=0"), code=1)
            require("training has failed" in text and "a lower optimizer.lr" in text, text[-800:])
            return {"message": text.splitlines()[-1]}
        zoo(*fit("one", "trainer.max_steps=40"))
        zoo(*fit("two", "trainer.max_steps=40", "trainer.devices=2"))
        return compare(folder / "one", folder / "two", 1e-3)


def recipe(options: argparse.Namespace) -> dict[str, Any]:
    at = AT[options.device]
    data = {"name": "sample", "vocab_size": 1024, **at.data}
    return {
        "name": "gpu_check", "model": {"kind": "decoder", "encoding": "rope", "num_heads": 4, **at.model},
        "data": data, "optimizer": {"lr": 1e-3, "warmup_steps": 20}, "checkpoint": {"every_n_steps": 20},
        "trainer": {"max_steps": 200, "accelerator": options.device, "precision": "32-true"},
        "evaluate": {"lengths": [data["sequence_length"]]}, "compile": False, "logging": ["csv"],
    }  # fmt: skip


def state_of(folder: Path) -> tuple[int, dict[str, Any]]:
    """The step and the weights of a run's last checkpoint."""
    file = folder / "checkpoints" / "last.ckpt"
    require(file.exists(), f"no {file.name} in {folder.name}")
    content = torch.load(file, map_location="cpu", weights_only=True)
    return content["global_step"], content["state_dict"]


def compare(one: Path, other: Path, bound: float) -> dict[str, Any]:
    """The weights of two runs: bitwise equal, or with a relative difference of at most `bound`."""
    (step, left), (other_step, right) = state_of(one), state_of(other)
    require(step == other_step and left.keys() == right.keys(), f"steps {step} and {other_step}")
    equal = all(torch.equal(left[key], right[key]) for key in left)
    difference = relative_error(*(torch.cat([x[key].flatten() for key in left]) for x in (left, right)))
    require(equal or difference <= bound, f"the weights differ by {difference:.1e} of their norm")
    return {"bitwise": equal, "difference": difference, "steps": step}


# Training speed and memory


def training(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Steps of AdamW in bf16, on a GPU compiled; `of_matrix_rate` counts the operations of `none`."""
    at, fastest = AT[options.device], matrix_rate(torch.bfloat16, torch.device(options.device))
    size = SIZES[at.trained]
    rate, memory = time_steps(name, size, options.device, at.steps, at.compiled)
    share = rate * products(size) / (size.batch * size.length) / fastest
    return {"tokens_per_s": round(rate), "peak_mib": memory, "of_matrix_rate": round(share, 3)}


def compile_first(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fill the cache of compiled code for `training`, while other items run. A CPU generates no code."""
    compiled = {"backend": "aot_eager"} if options.device == "cpu" else AT[options.device].compiled
    time_steps(name, SIZES[AT[options.device].trained], options.device, 1, compiled)
    return {}


def autotune(name: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """FlexAttention with block sizes chosen by timing some; matrix products stay with cuBLAS."""
    if options.device == "cpu":
        return None  # has no backward pass of FlexAttention
    tuned = {"options": {"max_autotune": True, "max_autotune_gemm_backends": "ATEN"}}
    at, found = AT[options.device], {}
    for word, compiled in (("default", at.compiled), ("autotuned", tuned)):
        rate, _ = time_steps(name, SIZES[at.trained], options.device, at.steps, compiled, "flex")
        found[f"tokens_per_s_{word}"] = round(rate)
    return {**found, "gain": round(found["tokens_per_s_autotuned"] / found["tokens_per_s_default"], 3)}


def long(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """A step of one long sequence, uncompiled. Memory grows with the length, not with its square."""
    found = {}
    for length in AT[options.device].long:
        size = replace(SIZES[AT[options.device].trained], length=length, batch=1)
        rate, memory = time_steps(name, size, options.device, 1, None)
        found |= {f"tokens_per_s_{length}": round(rate), f"peak_mib_{length}": memory}
    grown = memory / max(1, found[f"peak_mib_{AT[options.device].long[0]}"])
    require(grown < 5, f"memory grows {grown:.1f} times where the length grows four times: {found}")
    return found


def time_steps(
    name: str, size: Any, device: str, count: int, compiled: dict[str, Any] | None, kernel: str = "auto"
) -> tuple[float, int]:
    """Tokens per second, and the peak memory in MiB, on a CPU 0.

    Args:
        compiled: arguments of `torch.compile`, or None to compile nothing.
    """
    torch.compiler.reset()
    torch.manual_seed(0)
    if name in PEERS:
        model, loss_of = BUILDERS["HF Llama", "rope"](size, True)
        model.set_attn_implementation({"llama-sdpa": "sdpa", "llama-flash": "flash_attention_2"}[name])
    else:
        shape = {"d_model": size.width, "num_layers": size.layers, "num_heads": size.heads}
        config = ModelConfig(kind="decoder", encoding=name, kernel=kernel, **shape)
        model = Decoder(config, size.vocabulary, size.length)

        def loss_of(tokens):
            given, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
            return model(given, targets=targets) / targets.numel()

    model.to(device).train()
    if compiled is not None:
        model.compile(**compiled)
    steps = train(model, loss_of, random_tokens(size, torch.device(device)), bf16=True)
    first = next(steps).item()
    for _ in range(0 if compiled is None else 4):
        next(steps)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = clock(device)
    for _ in range(count):
        last = next(steps)
    seconds = (clock(device) - began) / count
    # The first loss is that of a model that knows nothing: log V.
    fair = abs(first - math.log(size.vocabulary)) < 1 and math.isfinite(last.item())
    require(fair, f"the loss begins at {first:.2f} and is {last.item():.2f} after {count} steps")
    memory = torch.cuda.max_memory_allocated() >> 20 if device == "cuda" else 0
    return size.batch * size.length / seconds, memory


# The items, and the processes that run them

PARTS = {
    "environment": environment, "training": training, "run": run, "kernels": kernels, "laws": laws,
    "decoding": decoding, "recompilation": recompilation, "autotune": autotune, "long": long,
    "compile": compile_first,
}  # fmt: skip
SPEED = ("environment", "training", "autotune", "long")
"""These run alone."""
RUNS = ("resume", "resume-deterministic", "evaluate", "out-of-memory", "nan", "ddp")
PART_1 = {
    "environment", "laws/rope", "laws/path", *(f"run/{name}" for name in RUNS[:4]),
    *(f"training/{name}" for name in (*OF_TRAINING, *PEERS)),
    *(f"kernels/{name}" for name in ("t5", "fire", "dpb", "kerple", "fox", "rope", "path")),
}  # fmt: skip
SHARE = 0.45
"""Share of the time after which no item begins that does not run alone, before those that do have run."""


def all_items(quick: bool) -> list[str]:
    names = [name for name in registry.encodings.names() if registry.encodings.describe(name).decoder]
    names = [name for name in names if name in OF_QUICK] if quick else names
    named = {
        "environment": ("",), "training": (*(OF_TRAINING[:3] if quick else OF_TRAINING), *PEERS), "run": RUNS,
        "kernels": names, "laws": OF_LAWS[:3] if quick else OF_LAWS, "decoding": names,
        "recompilation": ("alibi", "t5", "kerple"), "autotune": ("alibi", "t5"),
        "long": () if quick else (*OF_TRAINING, "llama-sdpa"),
    }  # fmt: skip
    return [f"{part}/{name}".rstrip("/") for part, some in named.items() for name in some]


def by_value(items: Sequence[str]) -> list[str]:
    """Part 1 first; in each part, items that have not passed on any GPU, and `none`, the base of shares."""
    stored = [json.loads(file.read_text()) for file in RESULTS.glob("*.json")]
    rows = [row for one in stored if one["device"] == "cuda" for row in one["results"]]
    passed = {row["item"] for row in rows if row["result"] == "passed"} - {"environment", "training/none"}
    return sorted(items, key=lambda item: (item not in PART_1, item in passed))


def try_item(item: str, options: argparse.Namespace) -> dict[str, Any]:
    """The result of an item; any exception is a result too."""
    part, _, name = item.partition("/")
    began = time.perf_counter()
    try:
        skipped = name == "llama-flash" and importlib.util.find_spec("flash_attn") is None
        numbers = None if skipped else PARTS[part](name, options)
        found = {"result": "skipped" if numbers is None else "passed", "numbers": numbers or {}}
    except Exception as error:
        text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {str(error)[:1000]}"
        found = {"result": "failed", "message": text}
    return {"item": item, **found, "seconds": round(time.perf_counter() - began, 1)}


class Child:
    """A process that runs items, one of some at once."""

    def __init__(self, options: argparse.Namespace, at_once: int):
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        threads = str(max(1, os.cpu_count() // at_once))
        names = ["TORCHINDUCTOR_COMPILE_THREADS", *["OMP_NUM_THREADS"] * (at_once > 1)]
        command = [sys.executable, __file__, *again([], options), "--child"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
            start_new_session=True, env=os.environ | dict.fromkeys(names, threads),
        )  # fmt: skip

    def result_of(self, item: str, seconds: float) -> dict[str, Any] | None:
        """None where the process ends, or is ended after so many seconds."""
        timer = threading.Timer(seconds, kill, [self.process])
        timer.start()
        with suppress(BrokenPipeError):
            print(item, file=self.process.stdin, flush=True)
        line = next((line for line in self.process.stdout if line.startswith(RESULT)), None)
        timer.cancel()
        return line and json.loads(line.removeprefix(RESULT))

    def close(self) -> str:
        """The end of its log."""
        kill(self.process)
        self.process.wait()
        self.log.seek(0)
        return self.log.read()[-800:]


def in_processes(
    items: Sequence[str], options: argparse.Namespace, ends: float, finished: Callable[[dict], None]
) -> None:
    """Give `finished` the results of the items that begin before the time is over."""
    alone = deque(item for item in items if item.partition("/")[0] in SPEED or item == "run/out-of-memory")
    trained = [item.partition("/")[2] for item in alone if item.startswith("training/")]
    compiled = [f"compile/{name}" for name in trained if len(trained) > 1 and options.jobs > 1]
    # These take most memory: every second one only.
    pairs = zip_longest(compiled, [item for item in items if item not in alone])
    together = deque(item for pair in pairs for item in pair if item)

    def work(queue: deque[str], at_once: int, until: float) -> None:
        child = None
        while (now := time.monotonic()) < until:
            try:
                item = queue.popleft()
            except IndexError:
                break
            child = child or Child(options, at_once)
            limit = min(SHORTER.get(item.partition("/")[0], ITEM_SECONDS), ends - now)
            result = child.result_of(item, limit)
            if result is None or result.pop("broken"):
                log, child = child.close(), None
            if result is None:
                over = time.monotonic() >= ends
                result = {"item": item, "result": "not run" if over else "failed"}
                result["message"] = "time is up" if over else f"its process ended or took too long: {log}"
            if at_once > 1 and item not in compiled and "out of memory" in result.get("message", ""):
                alone.append(item)  # the others took too much
            else:
                finished(result)
        if child:
            child.close()

    def stage(queue: deque[str], at_once: int, until: float = ends) -> None:
        with ThreadPoolExecutor(at_once) as pool:
            for done in [pool.submit(work, queue, at_once, until) for _ in range(min(at_once, len(queue)))]:
                done.result()

    now = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        kept = {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
        with mock.patch.dict(os.environ, kept):
            stage(together, options.jobs, now + SHARE * (ends - now) if alone else ends)
            stage(alone, 1)
            stage(together, options.jobs)


def again(items: Sequence[str], options: argparse.Namespace) -> list[str]:
    """The arguments that run these items again."""
    return ["--device", options.device, *(["--only", ",".join(items)] if items else [])]


def numbers_of(result: dict[str, Any]) -> str:
    numbers = {key: f"{value:.2g}" if isinstance(value, float) and abs(value) < 0.01 else value
               for key, value in result.get("numbers", {}).items()}  # fmt: skip
    text = result.get("message") or ", ".join(f"{key} {value}" for key, value in numbers.items())
    return " ".join(text.replace("|", "/").split())


def summary(result: dict[str, Any]) -> str:
    return f"{result['item']}: {result['result']}, {result.get('seconds', 0):.0f} s. {numbers_of(result)}"


def report(results: dict[str, dict[str, Any]], options: argparse.Namespace) -> Path:
    """Write the table and the JSON file with rows of earlier checks; gives their path without a suffix."""
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    out = options.out or RESULTS / re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    out.parent.mkdir(parents=True, exist_ok=True)
    for key, other in (("of_none", "training/none"), ("of_llama", "training/llama-sdpa")):
        base = results.get(other, {}).get("numbers", {}).get("tokens_per_s")
        for item, one in results.items():
            if base and item.startswith("training/") and item != other and one.get("numbers"):
                one["numbers"][key] = round(one["numbers"]["tokens_per_s"] / base, 3)
    file = out.with_suffix(".json")
    stored = {one["item"]: one for one in json.loads(file.read_text())["results"]} if file.exists() else {}
    merged = stored | {k: one for k, one in results.items() if one["result"] != "not run" or k not in stored}
    rows = ["| item | result | date | seconds | numbers |", "|---|---|---|--:|---|"]
    kept = [merged[item] for item in all_items(quick=False) if item in merged]
    for one in kept:
        text = numbers_of(one)
        if one["result"] in ("failed", "not run"):
            command = shlex.join(["python", "scripts/gpu_check.py", *again([one["item"]], options)])
            text += f". Repeat: `{command}`"
        cells = one["item"], one["result"], one.get("date", ""), one.get("seconds", ""), text
        rows.append(f"| {' | '.join(map(str, cells))} |")
    atomic_write(out.with_suffix(".md"), "\n".join(rows) + "\n")
    atomic_write(file, json.dumps({"device": options.device, "results": kept}, indent=1) + "\n")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the results, as FILE.md and FILE.json")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--part", type=int, choices=(1, 2), help="one of the two parts (default: both)")
    parser.add_argument("--quick", action="store_true", help="fewer encodings, no long sequences")
    parser.add_argument("--only", default="*", metavar="ITEM,ITEM", help="names, or patterns like 'laws/*'")
    parser.add_argument("--minutes", type=float, help="limit of the whole check (default: 4.8 for each part)")
    parser.add_argument(
        "--jobs", type=int, help="items at once (default: half of the cores, at most 8; on a CPU 1)"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here that PyTorch can use; --device cpu tries the script itself")
    if options.child:
        inductor.autotune_local_cache = False  # what was fastest while other items ran may not be it alone
        for line in sys.stdin:
            result = {**try_item(line.strip(), options), "broken": False}
            try:
                gc.collect()
                clock(options.device)
                if options.device == "cuda":
                    torch.cuda.empty_cache()  # for the other processes
            except RuntimeError:  # an illegal access: nothing works in this process any more
                result["broken"] = True
            print(f"\n{RESULT}{json.dumps(result)}", flush=True)
        return 0
    patterns, every = options.only.split(","), all_items(options.quick)
    items = [item for item in every if any(fnmatch.fnmatchcase(item, pattern) for pattern in patterns)]
    items = by_value([item for item in items if options.part in (None, 1 if item in PART_1 else 2)])
    if not items:
        parser.error(f"no item is named {options.only}: {', '.join(every)}")
    options.jobs = options.jobs or (max(1, min(os.cpu_count() // 2, 8)) if options.device == "cuda" else 1)
    minutes = options.minutes or (4.8 if options.part else 9.6)
    print(f"packages that are missing here: {', '.join(MISSING) or 'none'}", flush=True)
    results = {item: {"item": item, "result": "not run", "message": "time is up"} for item in items}
    lock = threading.Lock()

    def finished(result: dict[str, Any]) -> None:
        with lock:
            print(summary(result), flush=True)
            if result["item"] in results:  # `compile` has no row: `training` shows its faults
                results[result["item"]] = {**result, "date": time.strftime("%Y-%m-%d")}
                report(results, options)

    in_processes(items, options, time.monotonic() + 60 * minutes, finished)
    out = report(results, options)
    wrong = [item for item, one in results.items() if one["result"] in ("failed", "not run")]
    skipped = sum(one["result"] == "skipped" for one in results.values())
    print(f"{len(results) - len(wrong) - skipped} of {len(results)} items passed, {skipped} skipped; "
          f"written: {out}.md, .json")  # fmt: skip
    return int(any(item.partition("/")[0] not in SPEED[1:] for item in wrong))


if __name__ == "__main__":
    raise SystemExit(main())
