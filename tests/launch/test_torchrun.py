"""The command starts its own processes through torchrun's agent; exit codes are the command line's."""

import pytest
import yaml
from killed_runs import texts

from zoo import cli


@pytest.fixture
def arguments(here, mapping):
    """The arguments of a command that trains in two processes."""
    (here / "text.yaml").write_text(yaml.safe_dump(mapping("text")))
    return ["fit", "text.yaml", "--set", "trainer.devices=2"]


def test_wrong_input_in_all_processes_is_exit_code_2(forks, here, arguments):
    (here / "taken").mkdir()
    (here / "taken" / "file").touch()
    pids = forks.start([*arguments, "--out", "taken"], here, here / "log")
    assert forks.wait(pids) == [2]
    assert "taken is not empty; choose another folder" in texts(here / "log")


def test_wrong_input_is_reported_before_processes_start(arguments, monkeypatch, capsys):
    monkeypatch.setattr("zoo.launch.torchrun.launch", lambda *given: pytest.fail("processes were started"))
    assert cli.main([*arguments, "--set", "data.batch_size=3"]) == 2
    assert capsys.readouterr().err.count("a batch of 3 cannot be divided over 2") == 1
