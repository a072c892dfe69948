"""Token caches that are damaged, built twice at once, built by a process that is killed, and read-only."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from zoo import cli
from zoo.data import build_dataset
from zoo.data.text import cache as token_cache
from zoo.data.text.cache import open_cache
from zoo.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def corpus(recipe):
    return build_dataset(recipe("text").data).corpus()


def flipped(raw, draw):
    place = draw.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ 1 << draw.randrange(8)]) + raw[place + 1 :]


def overwritten(raw, draw):
    start = draw.randrange(len(raw))
    return raw[:start] + draw.randbytes(min(draw.randint(1, 64), len(raw) - start)) + raw[start + 64 :]


def truncated(raw, draw):
    return raw[: draw.randrange(len(raw))]


def extended(raw, draw):
    return raw + draw.randbytes(draw.randint(1, 100))


def zeroed(raw, draw):
    return bytes(len(raw))


def swapped(raw, draw):
    middle = draw.randrange(1, len(raw))
    return raw[middle:] + raw[:middle]


MUTATIONS = (flipped, flipped, overwritten, truncated, extended, zeroed, swapped)


@pytest.mark.slow
def test_of_1000_mutated_caches_none_is_opened(tmp_path, corpus, monkeypatch):
    monkeypatch.setattr(token_cache, "SETTLED", 0)  # so that the note of what was compared is used
    folder = open_cache(corpus, 300, tmp_path).folder
    open_cache(corpus, 300, tmp_path)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(files) == 12
    draw, tried = random.Random(0), 0
    while tried < 1000:
        file = files[tried % len(files)]
        mutation = draw.choice(MUTATIONS)
        raw = file.read_bytes()
        mutated = mutation(raw, draw)
        if mutated == raw:
            continue
        tried += 1
        times = file.stat()
        file.write_bytes(mutated)
        if draw.random() < 0.5:
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(InputError) as caught:
            open_cache(corpus, 300, tmp_path)
        message = str(caught.value)
        assert message.startswith(f"{folder}: the token cache is damaged: "), (file, mutation)
        # Where the sum of meta.json is damaged, it is meta.json that is not as it says.
        name = "meta.json" if file.name.startswith("meta.json") else file.relative_to(folder).as_posix()
        assert f"{name} has " in message and message.count("\n") == 0
        assert file.read_bytes() == mutated
        file.write_bytes(raw)
    assert open_cache(corpus, 300, tmp_path).folder == folder
    print(f"{tried} mutations of {len(files)} files: each told")


def arguments(cache, out):
    return ["fit", "--recipe", "text.yaml", "--set", f"data.cache={cache}", "--out", str(out)]


@pytest.fixture
def start(here, mapping):
    """Start a program of Python beside this one; it is killed with the test."""
    (here / "text.yaml").write_text(yaml.safe_dump({k: v for k, v in mapping("text").items() if k != "name"}))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    started = []

    def start(*command):
        process = subprocess.Popen(
            [sys.executable, *map(str, command)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


LEARNS = """
import sys, time
from zoo import cli
from zoo.data.text import cache

learn = cache.train_tokenizer

def watched(*given):
    print("learning", flush=True)
    time.sleep({seconds})
    return learn(*given)

cache.train_tokenizer = watched
sys.exit(cli.main(sys.argv[1:]))
"""
"""A zoo that says when it learns a tokenizer, and takes its time."""


@pytest.mark.slow
def test_two_runs_that_begin_at_once_build_one_cache(start, here):
    slow = here / "slow.py"
    slow.write_text(LEARNS.format(seconds=2))
    both = [start(slow, *arguments("cache", name)) for name in ("one", "two")]
    reported = [process.communicate(timeout=240) for process in both]
    assert [process.returncode for process in both] == [0, 0], reported
    assert sum(out.count("learning") for out, _ in reported) == 1
    assert sum("waiting for another process that tokenises sample" in error for _, error in reported) <= 1
    cards = [yaml.safe_load((here / name / "card.json").read_text()) for name in ("one", "two")]
    assert cards[0]["fingerprint"] == cards[1]["fingerprint"]
    assert len([path for path in (here / "cache").iterdir() if path.is_dir()]) == 2  # and surveys/
    assert (here / "one/tokenizer.json").read_bytes() == (here / "two/tokenizer.json").read_bytes()


@pytest.mark.slow
def test_a_builder_that_is_killed_leaves_the_next_one_free(start, here):
    slow = here / "slow.py"
    slow.write_text(LEARNS.format(seconds=100))
    killed = start(slow, *arguments("cache", "one"))
    assert killed.stdout.readline() == "learning\n"
    left = list((here / "cache").glob("*.part-*"))
    assert len(left) == 1
    killed.send_signal(signal.SIGKILL)
    assert killed.wait(timeout=20) == -signal.SIGKILL and left[0].exists()
    begun = time.monotonic()
    after = start("-m", "zoo", *arguments("cache", "two"))
    _, error = after.communicate(timeout=200)
    assert after.returncode == 0, error
    assert time.monotonic() - begun < 90 and not list((here / "cache").glob("*.part-*"))
    assert len([path for path in (here / "cache").iterdir() if path.is_dir()]) == 2


def test_a_damaged_cache_is_reported_by_the_command(here, mapping, corpus, capsys):
    (here / "text.yaml").write_text(yaml.safe_dump(mapping("text")))
    folder = open_cache(corpus, 300, Path("cache")).folder
    tokens = next((folder / "train").glob("*.arrow"))
    raw = tokens.read_bytes()
    tokens.write_bytes(raw[:2000] + bytes([raw[2000] ^ 4]) + raw[2001:])
    assert cli.main(arguments("cache", "run")) == 2 and not Path("run").exists()
    message = capsys.readouterr().err
    assert re.fullmatch(
        r"cache/\w+: the token cache is damaged: train/data-\S+ has another content .*\n", message
    )


def test_a_shared_cache_that_is_read_only_is_read_at_every_start(tmp_path, corpus, monkeypatch):
    root = tmp_path / "cache"
    folder = open_cache(corpus, 300, root).folder
    tokens = open_cache(corpus, 300, root).streams["train"][:].copy()
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    done = subprocess.run(["mount", "--bind", "-o", "ro", root, mounted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a folder cannot be mounted here, which needs root: {done.stderr.strip()}")
    try:
        with pytest.raises(OSError, match="Read-only"):
            (mounted / "x").touch()
        folder.with_suffix(".verified.json").unlink(missing_ok=True)
        monkeypatch.setattr(token_cache, "SETTLED", 0)
        for _ in range(2):
            assert np.array_equal(open_cache(corpus, 300, mounted).streams["train"][:], tokens)
        assert not folder.with_suffix(".verified.json").exists()
        with (folder / "tokenizer.json").open("ab") as file:
            file.write(b" ")
        with pytest.raises(InputError, match=r"tokenizer\.json has .* bytes and not"):
            open_cache(corpus, 300, mounted)
        shutil.rmtree(folder)
        with pytest.raises(InputError, match="Read-only file system; name a folder that can be written"):
            open_cache(corpus, 300, mounted)
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


@pytest.mark.slow
def test_readers_at_once_compare_a_file_once(tmp_path, corpus, monkeypatch):
    """Of the processes of a launch one reads, and the others find its note."""
    monkeypatch.setattr(token_cache, "SETTLED", 0)
    folder = open_cache(corpus, 300, tmp_path).folder
    folder.with_suffix(".verified.json").unlink()
    reader = (
        "import sys, time; from pathlib import Path; from types import SimpleNamespace\n"
        "from zoo.data.text import cache\n"
        "cache.SETTLED, real = 0, cache.crc32\n"
        "def slow(path, *more):\n"
        "    time.sleep(0.05); print(path.name, flush=True); return real(path, *more)\n"
        "cache.crc32 = slow\n"
        "folder = Path(sys.argv[1])\n"
        "cache.read(folder, 'sample', folder.with_suffix('.verified.json'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", reader, str(folder)]
    three = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    reported = [process.communicate(timeout=60)[0].split() for process in three]
    assert [process.returncode for process in three] == [0, 0, 0]
    assert sorted(map(len, reported)) == [0, 0, 10], reported
