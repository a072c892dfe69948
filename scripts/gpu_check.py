"""Prove the project on a GPU with one command and no network: correctness, speed, memory, whole runs.

    python scripts/gpu_check.py --part 1             what matters most, below 5 minutes on one H100
    python scripts/gpu_check.py --part 2             the rest, below 5 minutes
    python scripts/gpu_check.py                      both parts
    python scripts/gpu_check.py --only 'kernels/*'   some items again
    python scripts/gpu_check.py --device cpu --only laws/none     an item at a small size, to try this script

The items are the tests in tests/gpu: first those that check, several at once, then those that measure speed,
one by one. Items that have not passed on any GPU come first. Each item updates its row in a table and a JSON
file (scripts/results/gpu/DEVICE.md, .json). The exit code is 0 if no item failed, 1 if one failed or the time
was up, 2 if a package is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "scripts" / "results" / "gpu"
NEEDED = """torch lightning torchmetrics pydantic yaml numpy scipy pandas pyarrow tokenizers filelock tqdm
matplotlib plotly transformers pytest xdist"""
SHARE = 0.55
"""Share of the time after which no item goes on that need not run alone."""


def add_options(add: Callable) -> None:
    add("--device", choices=("cuda", "cpu"), default="cuda", help="where the items run")
    add("--part", choices=("1", "2"), help="one of the two parts (default: both)")
    add("--only", default="*", metavar="ITEM,ITEM", help="names, or patterns like 'laws/*'")
    add("--out", metavar="FILE", help="the results, as FILE.md and FILE.json")


def main(arguments: Sequence[str] | None = None) -> int:
    cores = os.cpu_count()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser.add_argument)
    parser.add_argument("--minutes", type=float, help="limit of the whole check (default: 4.8 for each part)")
    parser.add_argument("--jobs", type=int, default=max(1, min(cores // 2, 8)), help="items at once")
    options = parser.parse_args(arguments)
    if missing := [name for name in NEEDED.split() if importlib.util.find_spec(name) is None]:
        parser.error(f"missing packages: {', '.join(missing)}; without a network, bring wheels")
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here that PyTorch can use; --device cpu tries the script itself")
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    out = Path(options.out or RESULTS / re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")).resolve()
    given = [f"--out={out}", f"--device={options.device}", f"--only={options.only}"]
    given += [f"--part={options.part}"] if options.part else []
    ends = time.monotonic() + 60 * (options.minutes or (4.8 if options.part else 9.6))
    # Where a process dies, or is ended after 240 s with an item, that item fails and another process goes on.
    command = [sys.executable, "-m", "pytest", "tests/gpu", "-q", "--tb=short", "-p", "no:cacheprovider",
               "--dist=load", "--maxschedchunk=1", "-ofaulthandler_timeout=240", *given]  # fmt: skip
    codes, path = set(), os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as cache:
        for which, jobs in (("not alone", options.jobs), ("alone", 1)):
            own = {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": str(cores // jobs or 1)}
            process = subprocess.Popen(
                [*command, f"-n{jobs}", f"-mgpu and {which}"],
                cwd=ROOT, env=os.environ | {"PYTHONPATH": path} | own, start_new_session=True,
            )  # fmt: skip
            share = SHARE if which == "not alone" and options.only == "*" else 1
            with suppress(subprocess.TimeoutExpired):
                process.wait(share * (ends - time.monotonic()))
            codes.add(process.poll())
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it started
    if codes == {5}:
        parser.error(f"no item is named {options.only}")
    print(f"written: {out}.md, .json{'; the time was up' * (None in codes)}")
    return int(bool(codes - {0, 5}))


if __name__ == "__main__":
    raise SystemExit(main())
