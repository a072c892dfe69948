"""The command line as a whole: a verb is run, and how it ended is reported.

What a verb needs is imported when the verb is called. Each says when signals may raise: those that only read
and print never do.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from zoo.commands.parser import make_parser
from zoo.errors import InputError, RunError
from zoo.launch.ranks import is_first_process, report_once
from zoo.launch.signals import INTERRUPTED, may_set_handlers

DONE, FAILED, WRONG_INPUT = 0, 1, 2
OUT_OF_MEMORY = (
    "raise trainer.accumulate_grad_batches (the result stays the same), train with "
    "trainer.precision=bf16-mixed, or lower data.batch_size, data.sequence_length or model.d_model"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 the run failed, 2 wrong input, 130 interrupted.

    An exception that nobody foresaw keeps its traceback.
    """
    options = make_parser().parse_args(arguments)
    with _signal_handlers_restored():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        with report_once():
            _check_working_directory()
        options.run(options)
        sys.stdout.flush()
    except InputError as error:
        return _ended(error, WRONG_INPUT)
    except RunError as error:
        return _ended(error, FAILED)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except SystemExit as error:
        # Lightning turns Ctrl-C into an exit of its own. With our code another process reports it.
        if isinstance(error.__context__, KeyboardInterrupt) and error.code != INTERRUPTED:
            return _interrupted(error.__context__)
        if error.code:
            raise
        # Code that is not ours has left, and nothing of what was asked for need have been done.
        return _ended("stopped before its end: something called exit()", FAILED)
    except BrokenPipeError:
        # The reader of our output has left (`| head`); Python would complain once more while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        from zoo.files import full_disk_message, is_disk_full

        if not is_disk_full(error):
            raise
        return _ended(f"{full_disk_message(error)}; make room and try again", FAILED)
    except (RuntimeError, MemoryError) as error:
        from zoo.memory import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        notes = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
        return _ended(f"out of memory: {OUT_OF_MEMORY}.{notes}", FAILED)
    return DONE


def _ended(message: object, code: int) -> int:
    print(message, file=sys.stderr)
    return code


def _interrupted(error: KeyboardInterrupt) -> int:
    # Of processes that were started together the first reports it.
    if str(error) or is_first_process():
        print(str(error) or "interrupted", file=sys.stderr)
    return INTERRUPTED


def _check_working_directory() -> None:
    """Raises InputError where the working directory is gone: no path resolves, and torch does not load."""
    try:
        os.getcwd()
    except OSError as error:
        raise InputError(f"the working directory cannot be used ({error.strerror}): cd to another") from error


@contextmanager
def _signal_handlers_restored() -> Iterator[None]:
    """Restore the handlers of signals after the block: a verb replaces them, until its end is reported."""
    if not may_set_handlers():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            try:
                signal.signal(number, handler)
            except KeyboardInterrupt:  # by a signal at this moment, after the command's end
                signal.signal(number, handler)
