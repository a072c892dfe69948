"""A run that was trained once, with the checkpoint that the tests break."""

import shutil

import pytest
from small_run import MAPPING

from zoo.recipe import resolve
from zoo.reports.fit import fit


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A run that no test changes."""
    return fit(resolve(MAPPING), out=tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def run(made, here):
    """A run in runs/small, with its last checkpoint alone."""
    folder = here / "runs" / "small"
    shutil.copytree(made, folder)
    (folder / "checkpoints" / "best.ckpt").unlink()
    return folder


@pytest.fixture
def last(run):
    return run / "checkpoints" / "last.ckpt"


@pytest.fixture
def text_run(here, cache):
    """A run on three files of text that the user may change."""
    text = here / "text"
    text.mkdir()
    for number in range(4):
        (text / f"{number}.txt").write_text(
            " ".join(f"{chr(97 + i % 26)}{i % (7 + number)}" for i in range(900))
        )
    data = {"name": "text", "root": str(text), "vocab_size": 280, "sequence_length": 16, "batch_size": 4}
    mapping = {**MAPPING, "data": data, "model": {**MAPPING["model"], "kind": "decoder"},
               "evaluate": {"max_tokens": 128, "lengths": [16]}}  # fmt: skip
    return fit(resolve(mapping), out=here / "text_run"), mapping, text
