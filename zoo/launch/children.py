"""The further processes of a command: the same command again for each further device, and their supervision.

Lightning could start them, but its observer reacts to the loss of one with a SIGKILL to this process and no
message. With LOCAL_RANK in the environment it assumes that the processes are started, and observes none.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from zoo.launch.ranks import PARENT, find_launcher
from zoo.launch.signals import INTERRUPTED

AHEAD = "ZOO_AHEAD"
"""The environment variable of a process that was started ahead: `wait_until_started` reads its stdin."""
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

    def start_ahead(self, per_node: int) -> None:
        """Begin what `start` completes: the processes import what they need while this one does and prepares.

        They must come by `wait_until_started`. Does nothing where a launcher starts the processes.
        """
        if per_node > 1 and AHEAD not in os.environ and find_launcher() is None:
            self._run(per_node, ahead=True)

    def start(self, per_node: int, world_size: int | None = None) -> None:
        """Run this command once more for each device of this machine but the first.

        Sets the environment of process 0 of `world_size` (by default `per_node`) in this process.
        """
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        defaults = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
        os.environ |= {**defaults, **os.environ, "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size or per_node)}
        if len(self.processes) != per_node - 1:
            self.kill()
            self._run(per_node)
        shared = {name: os.environ[name] for name in _VARIABLES if name != "LOCAL_RANK"}
        for process in self.processes:
            if process.stdin is not None:
                with suppress(BrokenPipeError), process.stdin:  # the loss of one is the supervisor's
                    process.stdin.write(json.dumps(shared).encode())

    def _run(self, per_node: int, ahead: bool = False) -> None:
        main = sys.modules["__main__"]
        command = [os.path.abspath(sys.argv[0])] if main.__spec__ is None else ["-m", main.__spec__.name]
        command = [sys.executable, *command, *sys.argv[1:]]
        shared = {**os.environ, PARENT: str(os.getpid())} | ({AHEAD: "1"} if ahead else {})
        stdin = subprocess.PIPE if ahead else None
        self.processes = [
            subprocess.Popen(command, env={**shared, "LOCAL_RANK": str(rank)}, stdin=stdin)
            for rank in range(1, per_node)
        ]

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
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()  # one that was never to start ends
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

    The main thread may then be in a collective: in native code, where Python handles no signal.

    Args:
        children: may be started later.
        report: makes the text for stderr from the result of `Children.how_one_failed` (None: they were
            stopped); it returns None if another process has reported.
        patience: seconds for the main thread to notice the loss itself and call `stop`.
    """

    def __init__(self, children: Children, report: Callable[[str | None], str | None], patience: float = 0.0):
        super().__init__(daemon=True, name="supervisor")
        self.children, self.report, self.patience = children, report, patience
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(PAUSE):
            if self.children.failed() and not self.over.wait(self.patience):
                self.end(self.children.how_one_failed())

    def stop(self) -> None:
        """Stop supervising."""
        self.over.set()

    def end(self, how: str | None) -> None:
        """End all processes now, this one too; `how` one of them failed, None for a signal of the user."""
        text = self.report(how)
        self.children.kill()
        if text is not None:
            os.write(sys.__stderr__.fileno(), f"{text}\n".encode(errors="backslashreplace"))
        os._exit(INTERRUPTED if how is None else 1)


def wait_until_started() -> None:
    """In a process that was started ahead: wait for `Children.start`, or end with the one that started it."""
    if os.environ.pop(AHEAD, None) is None:
        return
    given = sys.stdin.read()
    if not given:
        raise SystemExit(INTERRUPTED)
    os.environ |= json.loads(given)


def describe_exit(code: int) -> str:
    """`ended with exit code 1`, `was killed by SIGKILL`."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"
