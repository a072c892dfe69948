"""The command starts its own processes through torchrun's agent; exit codes are the command line's."""

import pytest

TWO = ["--set", "trainer.devices=2"]


@pytest.mark.launch
def test_wrong_input_in_all_processes_is_exit_code_2(zoo_command, here):
    (here / "taken").mkdir()
    (here / "taken" / "file").touch()
    done = zoo_command("fit", "text.yaml", *TWO, "--out", "taken")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "taken is not empty; choose another folder\n"


@pytest.mark.launch
def test_wrong_input_is_reported_before_processes_start(zoo_command):
    done = zoo_command("fit", "text.yaml", *TWO, "--set", "data.batch_size=3")
    assert done.returncode == 2 and done.stderr.count("a batch of 3 cannot be divided over 2") == 1
