"""A folder for every run, its lock, and its log."""

import csv
import os
import signal
import threading
import time

import pytest

from zoo.errors import InputError
from zoo.recipe.diff import diff
from zoo.runs.folder import RunLock, new_run, runs_among, write_recipe
from zoo.training.loggers import CsvLog


def test_many_runs_at_once_each_get_their_own(here, recipe):
    made = []
    recipe = recipe()
    threads = [threading.Thread(target=lambda: made.append(new_run(recipe, None))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(folder.name for folder in made) == ["tiny", *(f"tiny-{n}" for n in range(2, 9))]


def test_only_one_gets_a_named_folder(here, recipe):
    (here / "mine").mkdir()  # empty, so it is free
    assert new_run(recipe(), here / "mine") == here / "mine"
    write_recipe(here / "mine", recipe())
    with pytest.raises(InputError, match="already holds a run"):
        new_run(recipe(), here / "mine")


def test_folders_beside_runs_are_skipped(here, recipe, capsys):
    """The logs of jobs, in `runs/*`; but not a folder of runs, a missing path, or all that was given."""
    (here / "logs").mkdir()
    write_recipe(here / "a", recipe())
    (here / "b" / "checkpoints").mkdir(parents=True)
    (here / "b" / "checkpoints" / "last.ckpt").touch()
    runs = [here / "a", here / "b", here / "missing", here]
    assert runs_among([here / "logs", *runs]) == runs
    assert capsys.readouterr().err == f"skipped, not a run: {here / 'logs'}\n"
    assert runs_among([here / "logs"]) == [here / "logs"] and not capsys.readouterr().err


def test_changed_keys():
    old = {"a": 1, "b": {"c": [1], "d": 2}, "gone": 3}
    assert diff(old, old) == []
    assert diff(old, {"a": 1, "b": {"c": [2], "d": 2}, "new": 4}) == [
        ("b.c", [1], [2]), ("gone", 3, None), ("new", None, 4),
    ]  # fmt: skip


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_logged_row_is_in_the_file_at_once(tmp_path):
    log = CsvLog(tmp_path)
    log.log_metrics({"a": 1.0}, step=1)
    log.log_metrics({"a": 2.0, "epoch": 0}, step=2)
    assert read(log.path) == [{"step": "1", "a": "1.0"}, {"step": "2", "a": "2.0"}]
    log.log_metrics({"b": 3.0}, step=2)  # another part of the same step, a new column
    log.log_metrics({"b": 4.0}, step=3)
    assert read(log.path) == [
        {"step": "1", "a": "1.0", "b": ""},
        {"step": "2", "a": "2.0", "b": "3.0"},
        {"step": "3", "a": "", "b": "4.0"},
    ]


def test_a_resumed_log_keeps_what_came_before_it(tmp_path):
    first = CsvLog(tmp_path)
    for step in (1, 2, 3):
        first.log_metrics({"a": float(step), "b": 0.0}, step=step)
    with first.path.open("a") as file:
        file.write("1")  # cut off in the midst of step 10
    second = CsvLog(tmp_path, keep_to_step=2)
    second.log_metrics({"a": 9.0, "b": 0.0}, step=3)
    assert [(row["step"], row["a"]) for row in read(second.path)] == [
        ("1", "1.0"),
        ("2", "2.0"),
        ("3", "9.0"),
    ]


def test_a_forked_process_does_not_keep_the_lock(here):
    """A loader's processes outlive a kill of the run: it can be resumed at once all the same."""
    asked, answer = os.pipe()
    parent = os.fork()
    if not parent:
        held = RunLock(here)
        child = os.fork()
        if not child:
            held.release()  # it is not the child's to free
            os.write(answer, b"%d\n" % os.getpid())
            time.sleep(600)
        time.sleep(600)
        os._exit(0)
    child = int(os.read(asked, 20))
    try:
        with pytest.raises(InputError, match="another process is at work"):
            RunLock(here)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        RunLock(here).release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(asked)
        os.close(answer)


def test_a_lock_that_is_held_for_a_moment_is_waited_for(here):
    held = RunLock(here)
    threading.Timer(0.3, held.release).start()
    RunLock(here).release()
