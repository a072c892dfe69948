"""The benchmark of a restart runs on the current code."""

import re

import pytest

import benchmark_restart


@pytest.mark.launch
def test_a_restart_amid_a_large_epoch(monkeypatch, capsys):
    """The script itself asserts that the resumed side begins at the step that its checkpoint was moved to."""
    monkeypatch.setattr("sys.argv", ["benchmark_restart.py", "--tokens", "2e6", "--rounds", "1"])
    benchmark_restart.main()
    assert float(re.search(r"takes (\d+\.\d+)", capsys.readouterr().out)[1]) > 0
