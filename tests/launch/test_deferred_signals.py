"""Signals while a module is imported."""

import signal

import pytest

from zoo.launch.signals import signals_deferred


def test_a_signal_within_an_import_is_handled_after_it():
    number, heard = signal.SIGTERM, []
    before = signal.signal(number, lambda number, frame: heard.append(number))
    try:
        with signals_deferred():
            signal.raise_signal(number)
            signal.raise_signal(number)
            assert not heard
        assert heard == [number]
    finally:
        signal.signal(number, before)


def test_an_error_of_the_import_is_raised():
    with pytest.raises(ImportError), signals_deferred():
        raise ImportError
