"""A full disk: one message, the files from before stay whole, and the run can be continued."""

import json
import os
import re
import shlex
import shutil
import subprocess

import pytest
import yaml
from run_files import assert_same, saved, settings

from zoo import cli

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("drawn")]

PAGE = os.sysconf("SC_PAGE_SIZE")
BIG = 32 << 20
LOGGING = "logging=[csv,tensorboard]"
STEPS = "trainer.max_steps=8"


class Disk:
    """A file system in memory, of a size that can be changed."""

    def __init__(self, folder):
        self.folder = folder

    def resize(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=True)

    def fill(self):
        """Take all the room there is."""
        with (self.folder / "filler").open("ab") as file, pytest.raises(OSError, match="No space"):
            while True:
                os.write(file.fileno(), bytes(PAGE))

    def empty(self):
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={BIG}", "tmpfs", folder], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"a disk of its own cannot be mounted here, which needs root: {made.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def zoo(here, mapping, capfd):
    """Run a command in this process; gives its exit code, and the lines of its messages."""
    (here / "tiny.yaml").write_text(yaml.safe_dump(mapping()))

    def zoo(*arguments):
        capfd.readouterr()
        code = cli.main([str(one) for one in arguments])
        lines = capfd.readouterr().err.splitlines()
        return code, [line for line in lines if line.strip() and not re.search(r"\d+/\d+ \[|it/s", line)]

    return zoo


def fit(zoo, folder, *more):
    sets = settings("model.dropout=0.1", STEPS, LOGGING, "checkpoint.every_n_steps=2")
    return zoo("fit", "--recipe", "tiny.yaml", *sets, "--out", folder, *more)


def drafts(folder):
    """Files that were being written, which have temporary names."""
    return [path for path in folder.rglob("*") if re.search(r"^\.[^/]*\.\d+$|\.part-", path.name)]


PAGES = [0, 1, 2, 4, 12, 28, 38, 44, 49, 55, 62, 200, 4000]
"""The first checkpoint takes 37 pages, the full run 70."""


def test_a_run_that_fills_its_disk_can_be_continued(disk, zoo, here):
    assert fit(zoo, here / "whole")[0] == 0
    whole, unwritten, resumed = saved(here / "whole"), set(), 0
    for pages in PAGES:
        disk.resize(BIG)
        disk.empty()
        disk.resize(PAGE * max(1, pages))
        if not pages:
            disk.fill()
        folder = disk.folder / "run"
        code, expected = fit(zoo, folder)
        if code == 0:
            break
        assert code == 1 and len(expected) == 1 and "o space left on device" in expected[0], expected
        assert "Traceback" not in expected[0] and not drafts(disk.folder)
        unwritten.update(re.findall(r"([\w.]+) could not be written", expected[0]))
        command = expected[0].rpartition(": ")[2]
        if not folder.exists():
            assert "No checkpoint was written" in expected[0] or f"{folder} could not be" in expected[0]
            continue
        disk.resize(BIG)
        done = re.search(r"last checkpoint is of step (\d+)", expected[0])
        if done is None:
            assert "The run is trained and saved" in expected[0]
        else:
            assert saved(folder)["global_step"] == int(done[1])
            resumed += 1
        assert zoo(*shlex.split(command)[3:])[0] == 0, command
        assert_same(whole, saved(folder))
        assert json.loads((folder / "evaluation" / "lengths.json").read_text())
        assert not drafts(folder)
    else:
        pytest.fail("the run was never whole")
    print(
        f"up to {pages} pages; resumed {resumed} times; could not be written: {', '.join(sorted(unwritten))}"
    )
    assert resumed >= 2
    assert unwritten >= {"recipe.yaml", "metrics.csv", "last.ckpt", "best.ckpt"}
