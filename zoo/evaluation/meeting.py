"""Processes meet, or end: a signal, or the end of one of them, while others wait for it."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from subprocess import Popen

from lightning.fabric.strategies.launchers import subprocess_script

from zoo.processes.signals import INTERRUPTED, NUMBERS, handled, leave_interrupted

PAUSE = 0.1  # seconds between two looks

STOPPED = (INTERRUPTED, *(-number for number in NUMBERS))
"""What a process ends with that somebody has stopped."""

Children = Callable[[], Sequence[Popen]]


@contextmanager
def meeting(children: Children, lost: str) -> Iterator[None]:
    """The block ends once all are there. If that cannot be, this process ends, and those that it has started.

    Whoever waits for others does so in torch's native code, where Python hears no signal and no child's end.
    A thread hears both: Python's own handler, which runs at once, writes each signal to a pipe.

    Args:
        children: what this process has started, at the time of asking.
        lost: is told where one of them has ended by itself.
    """
    heard = []
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(reader, children, lost, over), daemon=True)
    with _unobserved(), handled(lambda *given: heard.append(given)):
        before = _wake(writer)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()
            _wake(before)
            os.close(reader)
            os.close(writer)
    if heard:
        raise KeyboardInterrupt


def _wake(descriptor: int) -> int:
    if threading.current_thread() is not threading.main_thread():
        return -1
    return signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)


@contextmanager
def _unobserved() -> Iterator[None]:
    """Lightning's observer kills this process by SIGKILL, within 5 seconds, once a child ended badly."""
    launch = subprocess_script._launch_process_observer
    subprocess_script._launch_process_observer = lambda children: None
    try:
        yield
    finally:
        subprocess_script._launch_process_observer = launch


def _watch(reader: int, children: Children, lost: str, over: threading.Event) -> None:
    while not over.is_from_command_line():
        ready, _, _ = select.select([reader], [], [], PAUSE)
        stopped = bool(ready) and not {*os.read(reader, 64)}.isdisjoint(NUMBERS)
        codes = [child.returncode for child in children() if child.poll()]
        if stopped or codes:
            _end(children(), stopped or all(code in STOPPED for code in codes), lost)


def _end(children: Sequence[Popen], stopped: bool, lost: str) -> None:
    for child in children:
        child.kill()
    for child in children:
        child.wait()
    if stopped:
        leave_interrupted()
    os.write(2, f"{lost}\n".encode(errors="backslashreplace"))
    os._exit(1)
