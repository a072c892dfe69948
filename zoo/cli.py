"""The command line: run a verb and report how it ended.

A verb imports its modules when it is called. SIGTERM raises KeyboardInterrupt, as SIGINT does.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType

from zoo.commands.parser import VERBS, make_parser
from zoo.errors import InputError, RunError, hint
from zoo.launch.devices import load_of_shared_cores
from zoo.launch.ranks import INTERRUPTED, find_launcher, is_first_process, leave_launch, may_set_handlers

DONE, FAILED, WRONG_INPUT = 0, 1, 2
OUT_OF_MEMORY = (
    "raise trainer.accumulate_grad_batches (the result stays the same), train with "
    "trainer.precision=bf16-mixed, or lower data.batch_size, data.sequence_length or model.d_model"
)
UNUSABLE = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST, errno.ENOTDIR
)  # fmt: skip
"""Errors of a path that the user gave."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 the run failed, 2 wrong input, 130 interrupted.

    An unexpected exception keeps its traceback.
    """
    arguments = sys.argv[1:] if arguments is None else list(map(str, arguments))
    if find_launcher() is None:
        leave_launch()  # a rank may be left over from a container or the shell of a job
    if load_of_shared_cores():
        # Threads of torch that spin while they wait take the cores from those that they wait for.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    parser = make_parser()
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        parser.error(f"no verb {arguments[0]!r}; {hint(arguments[0], VERBS)}")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        verb = options.verb_parser
        known = f"; {hint(unknown[0], verb._option_string_actions)}" if unknown[0].startswith("-") else ""
        verb.error(f"unrecognized arguments: {' '.join(unknown)}{known}")
    options.arguments = arguments
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    try:
        return _run(options)
    finally:
        # Signals are ignored while the end is reported.
        for number, handler in before.items() if may_set_handlers() else ():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import, which may swallow it, end the process at once."""
    files = (caller.f_code.co_filename for caller, _ in traceback.walk_stack(frame))
    if "<frozen importlib._bootstrap>" in files:
        if is_first_process():
            os.write(2, b"interrupted\n")  # a handler may run in the middle of another print
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def _run(options: argparse.Namespace) -> int:
    try:
        _handle_signals(_interrupt)
        code = options.run(options)
        sys.stdout.flush()
        return code or DONE
    except InputError as error:
        return _ended(error, WRONG_INPUT)
    except RunError as error:
        return _ended(error, FAILED, error)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except BrokenPipeError:
        # The reader of the output has left (`| head`); Python would complain again while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except (OSError, RuntimeError, MemoryError) as error:
        if message := _advice(error):
            return _ended(message, FAILED, error)
        if isinstance(error, OSError) and error.errno in UNUSABLE and error.filename:
            return _ended(f"{error.filename}: {error.strerror.lower()}", WRONG_INPUT)
        raise


def _advice(error: Exception) -> str | None:
    """Advice on a full disk or too little memory; None for another error."""
    from zoo.files import is_disk_full
    from zoo.memory import is_out_of_memory

    if isinstance(error, OSError) and is_disk_full(error):
        file = f"{error.filename} could not be written: " if error.filename else ""
        return f"{file}{error.strerror.lower()}; make room and try again"
    return f"out of memory: {OUT_OF_MEMORY}" if is_out_of_memory(error) else None


def _ended(message: object, code: int, error: BaseException | None = None) -> int:
    """Print a message with the notes of its error."""
    _ignore_signals()
    print(". ".join([str(message), *getattr(error, "__notes__", ())]), file=sys.stderr)
    return code


def _interrupted(error: KeyboardInterrupt) -> int:
    _ignore_signals()
    if is_first_process():
        print(str(error) or "interrupted", file=sys.stderr)
    return INTERRUPTED


def _ignore_signals() -> None:
    """The launcher sends SIGTERM once another process has left."""
    _handle_signals(signal.SIG_IGN)


def _handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM) if may_set_handlers() else ():
        # A background job of a shell script ignores Ctrl-C.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
