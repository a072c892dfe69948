"""Plugins in files of their own, each with one fault."""

import pytest
from faults import SOURCES


@pytest.fixture
def faulty(tmp_path):
    """Write a faulty plugin into a file; gives its path."""

    def faulty(name, source=None):
        file = tmp_path / f"{name}.py"
        file.write_text(source or SOURCES[name])
        return file

    return faulty


@pytest.fixture
def text_at():
    """The line of a file that a place FILE:LINE names."""

    def text_at(place):
        file, _, line = place.rpartition(":")
        with open(file) as opened:
            return opened.read().splitlines()[int(line) - 1].strip()

    return text_at
