"""The further processes of a command: the same command again for each further device, and their supervision.

Lightning could start them, but its observer reacts to the loss of one with a SIGKILL to this process and no
message. With LOCAL_RANK in the environment it assumes that the processes are started, and observes none.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from zoo.launch.ranks import PARENT
from zoo.launch.signals import INTERRUPTED, NUMBERS, may_set_handlers, signal_handler

PAUSE = 0.1  # seconds between two looks
LEAVE_SECONDS = 20.0
_STOPPED = (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)
_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Children:
    """The processes that this one has started; none at first.

    Kills them at the end of its `with` block, after an error at once, else after `LEAVE_SECONDS`.
    """

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen] = []
        self._environment: dict[str, str | None] = {}

    def start(self, per_node: int, world_size: int | None = None) -> None:
        """Run this command once more for each device of this machine but the first.

        Sets the environment of process 0 of `world_size` (by default `per_node`) in this process.
        """
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(free_port()))
        os.environ.setdefault("NODE_RANK", "0")
        os.environ |= {"LOCAL_RANK": "0", "WORLD_SIZE": str(world_size or per_node)}
        for rank in range(1, per_node):
            own = {"LOCAL_RANK": str(rank), PARENT: str(os.getpid())}
            self.processes.append(subprocess.Popen(_this_command(), env={**os.environ, **own}))

    def failed(self) -> list[subprocess.Popen]:
        """The processes that have ended with an error, those that were killed first."""
        return sorted((one for one in self.processes if one.poll()), key=lambda one: one.returncode)

    def wait_for_failure(self, seconds: float) -> None:
        """Wait until one has failed: its sockets are closed before it can be waited for."""
        limit = time.monotonic() + seconds
        while self.processes and not self.failed() and time.monotonic() < limit:
            time.sleep(0.05)

    def how_one_failed(self) -> str | None:
        """`process 1 of this run was killed by SIGKILL`; None if all were stopped by a signal of the user."""
        first = next((one for one in self.failed() if one.returncode not in _STOPPED), None)
        if first is None:
            return None
        return f"process {self.processes.index(first) + 1} of this run {describe_exit(first.returncode)}"

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def __enter__(self) -> Children:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.close(LEAVE_SECONDS if kind is None else 0.0)

    def close(self, seconds: float = LEAVE_SECONDS) -> None:
        """Wait for all of them to end, kill the rest, and restore the environment."""
        limit = time.monotonic() + seconds
        while any(one.poll() is None for one in self.processes) and time.monotonic() < limit:
            time.sleep(0.02)
        self.kill()
        for name, value in self._environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class Supervisor(threading.Thread):
    """Ends this process and its children once one of them has failed, and reports it once.

    The main thread may then be in a collective or a rendezvous: in native code, where Python handles no
    signal.

    Args:
        children: may be started later.
        report: makes the text for stderr from the result of `Children.how_one_failed` (None: they were
            stopped); it returns None if another process has reported.
        patience: seconds for the main thread to notice the loss itself and call `stop`.
        signals: as a context manager: a signal in the block also ends all processes at once.
    """

    def __init__(
        self,
        children: Children,
        report: Callable[[str | None], str | None],
        patience: float = 0.0,
        signals: bool = False,
    ):
        super().__init__(daemon=True, name="supervisor")
        self.children, self.report, self.patience, self.signals = children, report, patience, signals
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            stopped = self._wait()
            if stopped or (self.children.failed() and not self.over.wait(self.patience)):
                self._end(stopped)

    def stop(self) -> None:
        """Stop supervising."""
        self.over.set()

    def _wait(self) -> bool:
        """Wait a moment. Returns whether a signal came, if this thread handles them."""
        if not self.signals:
            self.over.wait(PAUSE)
            return False
        ready, _, _ = select.select([self._reader], [], [], PAUSE)
        return bool(ready) and not {*os.read(self._reader, 64)}.isdisjoint(NUMBERS)

    def __enter__(self) -> Supervisor:
        # Python's own handler runs at once, and writes the number of each signal into this pipe.
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._received: list[object] = []
        self._handler = signal_handler(lambda *given: self._received.append(given))
        self._handler.__enter__()
        self._wakeup = _set_wakeup(self._writer)
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()
        self.join()
        _set_wakeup(self._wakeup)
        self._handler.__exit__(None, None, None)
        os.close(self._reader)
        os.close(self._writer)
        if self._received:
            raise KeyboardInterrupt

    def _end(self, stopped: bool) -> None:
        how = None if stopped else self.children.how_one_failed()
        text = self.report(how)
        self.children.kill()
        if text is not None:
            os.write(sys.__stderr__.fileno(), f"{text}\n".encode(errors="backslashreplace"))
        os._exit(INTERRUPTED if how is None else 1)


def describe_exit(code: int) -> str:
    """`ended with exit code 1`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def cpu_cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_port() -> int:
    """A TCP port that nobody listens on, on this machine."""
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


def _this_command() -> list[str]:
    main = sys.modules["__main__"]
    if main.__spec__ is None:
        return [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]
    return [sys.executable, "-m", main.__spec__.name, *sys.argv[1:]]


def _set_wakeup(descriptor: int) -> int:
    return signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False) if may_set_handlers() else -1
