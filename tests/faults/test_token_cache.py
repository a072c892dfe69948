"""Token caches: built by two processes at once, by a process that is killed, and read-only."""

import os
import shutil
import signal
import subprocess

import numpy as np
import pytest
import yaml
from killed_runs import texts, wait_for

from zoo.data import build_dataset
from zoo.data.text.cache import open_cache
from zoo.errors import InputError


@pytest.fixture
def corpus(recipe):
    return build_dataset(recipe("text").data).corpus


def arguments(cache, out):
    return ["fit", "--recipe", "text.yaml", "--set", f"data.cache={cache}", "--out", str(out)]


@pytest.fixture
def text_recipe(here, mapping):
    (here / "text.yaml").write_text(yaml.safe_dump(mapping("text")))


def caches(here):
    return [path.name for path in (here / "cache").iterdir() if path.is_dir()]


@pytest.mark.slow
def test_two_runs_at_once_build_one_cache(forks, here, text_recipe):
    one = forks.start(arguments("cache", "one"), here, here / "one.log", halt=("tokenizer", 0))
    forks.wait_for_halt(one, here / "one.log")
    two = forks.start(arguments("cache", "two"), here, here / "two.log")
    waiting = "waiting for another process that tokenizes sample"
    assert wait_for(lambda: waiting in texts(here / "two.log"))
    forks.let_go(one, here / "one.log")
    assert forks.wait(one) == forks.wait(two) == [0]
    cards = [yaml.safe_load((here / name / "card.json").read_text()) for name in ("one", "two")]
    assert cards[0]["fingerprint"] == cards[1]["fingerprint"] and len(caches(here)) == 1
    assert (here / "one/tokenizer.json").read_bytes() == (here / "two/tokenizer.json").read_bytes()


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_builds_blocks_no_other(forks, here, text_recipe):
    one = forks.start(arguments("cache", "one"), here, here / "one.log", halt=("tokenizer", 0))
    forks.wait_for_halt(one, here / "one.log")
    assert len([*(here / "cache").glob(".*")]) == 1
    os.kill(one[0], signal.SIGKILL)
    forks.wait(one)
    forks.run(arguments("cache", "two"), here, "two")
    assert not [*(here / "cache").glob(".*")] and len(caches(here)) == 1


def test_a_shared_cache_can_be_read_only(tmp_path, corpus):
    root, mounted = tmp_path / "cache", tmp_path / "mounted"
    mounted.mkdir()
    first = open_cache(corpus, 300, root)
    tokens = first.streams["train"][:].copy()
    done = subprocess.run(["mount", "--bind", "-o", "ro", root, mounted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a folder cannot be mounted here, which needs root: {done.stderr.strip()}")
    try:
        with pytest.raises(OSError, match="Read-only"):
            (mounted / "x").touch()
        assert np.array_equal(open_cache(corpus, 300, mounted).streams["train"][:], tokens)
        shutil.rmtree(first.folder)
        with pytest.raises(InputError, match=r"Read-only file system; .*name another folder"):
            open_cache(corpus, 300, mounted)
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)
