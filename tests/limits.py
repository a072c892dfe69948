"""A time limit around code that might not end."""

import signal
from contextlib import contextmanager


class Hang(BaseException):
    """It took too long. Nothing catches it on its way."""


@contextmanager
def at_most(seconds):
    """Raises Hang in the block once so many seconds have passed."""

    def give_up(*_):
        raise Hang(f"not done in {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
