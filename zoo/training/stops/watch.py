"""The processes of a run on one machine watch each other: where one has died, the others do not wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import torch.distributed as dist
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver

from zoo.processes.signals import INTERRUPTED

PAUSE = 0.2  # seconds between two looks
PATIENCE = 5.0  # seconds that this process has to notice by itself that another is gone, and to tell it

LOSSES = (dist.DistBackendError, dist.DistNetworkError)


class Watch(threading.Thread):
    """Ends this process where it would wait for one that is gone, and says so once.

    The first process looks at the children that Lightning's launcher has started; torchrun and SLURM look at
    theirs. A process in the midst of a long step, or of a collective that never ends, cannot tell anything
    itself; this thread can. It asks `tells` whether another process has told already.
    """

    def __init__(self, launcher: object, how_to_continue: Callable[[], str], tells: Callable[[], bool]):
        super().__init__(daemon=True, name="watch")
        self.launcher, self.how_to_continue, self.tells = launcher, how_to_continue, tells
        self.over = threading.Event()

    @property
    def children(self) -> list[subprocess.Popen]:
        return list(getattr(self.launcher, "procs", []))

    def run(self) -> None:
        while not self.over.wait(PAUSE):
            self._be_the_only_watch()
            if self._ended() and not self.over.wait(PATIENCE):
                self._end()

    def stop(self) -> None:
        """Watch no more."""
        self.over.set()

    def lost(self, error: BaseException) -> str | None:
        """What is told where an error came of another process being gone; None for any other error."""
        if not isinstance(error, LOSSES) and not (isinstance(error, RuntimeError) and "gloo" in str(error)):
            return None
        limit = time.monotonic() + PATIENCE
        while self.children and not self._ended() and time.monotonic() < limit:
            time.sleep(0.05)  # its sockets are closed before it can be waited for
        return self._told()

    def _told(self) -> str:
        ended = self._ended()
        if not ended:
            return f"another process of this run is gone; {self.how_to_continue()}"
        code = ended[0].returncode
        if code == INTERRUPTED:
            return f"interrupted; {self.how_to_continue()}"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"process {self.children.index(ended[0]) + 1} of this run {how}; {self.how_to_continue()}"

    def _ended(self) -> list[subprocess.Popen]:
        """The children that did not end well, those first that were killed, those last that were stopped."""
        return sorted((child for child in self.children if child.poll()), key=lambda child: child.returncode)

    def _end(self) -> None:
        text, code = self._told(), self._ended()[0].returncode
        tells = self.tells()
        for child in self.children:
            child.kill()
        if tells:
            os.write(sys.__stderr__.fileno(), f"\n{text}\n".encode(errors="backslashreplace"))
        # Who was stopped at once was not lost, and the others were told to stop too.
        os._exit(INTERRUPTED if code == INTERRUPTED else 1)

    @staticmethod
    def _be_the_only_watch() -> None:
        """Lightning's own observer kills this process, within 5 seconds, without a word."""
        for thread in threading.enumerate():
            if isinstance(thread, _ChildProcessObserver):
                thread._child_processes = []
