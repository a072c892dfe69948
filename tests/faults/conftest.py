"""Processes to be killed."""

import pytest
from killed_runs import Forks


@pytest.fixture(scope="session")
def forks():
    forks = Forks()
    yield forks
    forks.stop()
