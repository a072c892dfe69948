"""Runs in forked processes that halt at a chosen place, and comparisons of the runs that they leave."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
import yaml
from run_files import assert_same, logged, saved, settings
from torch.distributed import TCPStore

ROOT = Path(__file__).parents[2]
TIMED = ("train/tokens_per_second", "train/peak_memory_mb", "tokens_per_second", "peak_memory_mb")


class Forks:
    """Processes that run `zoo` at once, all imports done; see `forked_runs.py`."""

    def __init__(self):
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK")}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.groups = []
        self.stores = []
        self.server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forked_runs.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def ask(self, **order):
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def start(self, arguments, folder, log, world_size=1, halt=None, patch=None, nodes=1, **environment):
        """The process ids, the first of which is the group's too. Only the last process halts.

        Args:
            halt: where, and in which step; until `let_go`.
            patch: a Python file that each process runs first.
            nodes: as many machines have the same number of processes each.
        """
        pids, local_size = [], world_size // nodes
        if world_size > 1:
            # Here, as in torchrun's agent: a port that a process would bind later may be taken by then.
            store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            self.stores.append(store)
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
            environment |= {"GLOO_SOCKET_IFNAME": "lo"}  # whatever address the machine's name has
            environment |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
        for rank in range(world_size):
            own = {}
            if world_size > 1:
                own = {"RANK": str(rank), "LOCAL_RANK": str(rank % local_size),
                       "GROUP_RANK": str(rank // local_size),
                       "LOCAL_WORLD_SIZE": str(local_size), "WORLD_SIZE": str(world_size),
                       "TORCHELASTIC_RUN_ID": "test"}  # fmt: skip
            if "SLURM_JOB_ID" in environment:
                own = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0",
                       "SLURM_NTASKS": str(world_size), "SLURM_NTASKS_PER_NODE": str(world_size),
                       "SLURM_STEP_NUM_TASKS": str(world_size), "SLURM_NNODES": "1",
                       "SLURM_NODELIST": "localhost"}  # fmt: skip
            pids.append(self.ask(
                start=[str(a) for a in arguments], folder=str(folder), log=f"{log}.{rank}",
                environment={**environment, **own}, group=pids[0] if pids else 0,
                halt=halt if rank == world_size - 1 else None, patch=patch and str(patch),
            ))  # fmt: skip
        self.groups.append(pids[0])
        return pids

    def wait_for_halt(self, pids, log):
        """Wait until the last process has halted."""
        halted = Path(f"{log}.{len(pids) - 1}.halted")
        wait_for(lambda: halted.exists() or not alive_in_group(pids[0]))
        assert halted.exists(), texts(log)

    def let_go(self, pids, log):
        Path(f"{log}.{len(pids) - 1}.halted").write_text("go on")

    def run(self, arguments, folder, name, world_size=1, patch=None, **environment):
        """Run a command to its end; gives its text, or fails with it."""
        log = Path(folder) / f"{name}.log"
        pids = self.start(arguments, folder, log, world_size, patch=patch, **environment)
        for pid in pids:
            code = self.ask(wait=pid)
            if code:
                kill_group(pids[0])  # the others would wait for it
            assert code == 0, texts(log)
        return texts(log)

    def wait(self, pids):
        return [self.ask(wait=pid) for pid in pids]

    def stop(self):
        for group in self.groups:
            kill_group(group)
        self.server.kill()
        self.server.communicate()


def wait_for(condition, seconds=60.0):
    """Wait until it holds; whether it did in time."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def alive_in_group(group):
    """Ids of the processes of a group that are not dead."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def kill_group(group):
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def assert_same_checkpoint(one, two):
    """The same weights, optimizer, schedule, progress and place in the data, bit for bit."""
    parts = ("global_step", "epoch", "state_dict", "optimizer_states", "lr_schedulers", "zoo_card")
    assert_same(*(torch.load(file, weights_only=True) for file in (one, two)), parts)


def rows_of(folder):
    return [{k: v for k, v in row.items() if k not in TIMED} for row in logged(folder)]


def results_of(folder):
    rows = json.loads((folder / "evaluation" / "lengths.json").read_text())
    return [{k: v for k, v in row.items() if k not in TIMED} for row in rows]


def files_of(folder):
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if "tensorboard" not in path.parts
    )


def assert_same_run(whole, killed):
    """Everything that the two runs left is the same, but for times; nothing is left over."""
    assert files_of(whole) == files_of(killed)
    for name in ("last.ckpt", "best.ckpt"):
        assert_same_checkpoint(whole / "checkpoints" / name, killed / "checkpoints" / name)
    assert rows_of(whole) == rows_of(killed)
    assert results_of(whole) == results_of(killed)
    assert json.loads((whole / "card.json").read_text()) == json.loads((killed / "card.json").read_text())
    assert (whole / "recipe.yaml").read_text() == (killed / "recipe.yaml").read_text()


def endless(mapping, here, *sets):
    """The arguments of `zoo fit` for a run into run/ that only a signal ends."""
    made = {key: value for key, value in mapping("text").items() if key != "name"}
    (here / "text.yaml").write_text(yaml.safe_dump(made))
    # Longer than any of these tests.
    sets = ["trainer.max_steps=100000", "optimizer.schedule=constant", "checkpoint.every_n_steps=100000",
            "trainer.val_check_interval=50", "trainer.log_every_n_steps=1", *sets]  # fmt: skip
    return ["fit", "--recipe", "text.yaml", "--out", "run", *settings(*sets)]


def texts(log):
    return "".join(file.read_text() for file in sorted(log.parent.glob(log.name + ".[0-9]")))


def last_line(text):
    return text.strip().splitlines()[-1]


def saved_step(folder):
    return saved(folder)["global_step"]


def is_training(here, before=0):
    """Whether some steps have been logged, in more than so many bytes: the file is there before the first."""
    log = here / "run" / "metrics.csv"
    return lambda: log.exists() and log.stat().st_size > before and log.read_text().count("\n") > 3


def assert_saved(here, text):
    assert "Traceback" not in text
    line = last_line(text)
    step = saved_step(here / "run")
    assert line.startswith(f"interrupted at step {step}; saved; continue: python -m zoo fit ")
    assert text.count("interrupted") == 1
