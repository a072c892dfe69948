"""Captures what an encoding's code prints and warns while laws are tried."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

# Their warnings and logs are about how laws are tried.
OUR_OWN = tuple(f"{Path(sys.modules[name].__file__ or '').parent}{os.sep}" for name in ("torch", "zoo"))


@contextmanager
def captured() -> Iterator[StringIO]:
    """Collects stdout, stderr and warnings; those of torch and of the zoo, and torch's logs, are dropped."""
    output = StringIO()
    handlers = _torch_handlers()
    for handler in handlers:
        handler.addFilter(_nothing)
    try:
        with redirect_stdout(output), redirect_stderr(output), warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda *args, **_: _keep(output, *args[:4])
            yield output
    finally:
        for handler in handlers:
            handler.removeFilter(_nothing)


def _keep(output: StringIO, message: Warning | str, category: type[Warning], file: str, line: int) -> None:
    if not file.startswith(OUR_OWN):
        output.write(f"{file}:{line}: {category.__name__}: {message}\n")


def _torch_handlers() -> list[logging.Handler]:
    loggers = logging.root.manager.loggerDict
    return [
        handler
        for name, logger in list(loggers.items())
        if name.split(".")[0] == "torch" and isinstance(logger, logging.Logger)
        for handler in logger.handlers
    ]


def _nothing(record: logging.LogRecord) -> bool:
    return False
