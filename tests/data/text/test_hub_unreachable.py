"""A hub that does not answer: one message within seconds, and what was fetched before is used."""

import socket
import time

import pytest

from zoo.data.text import hub
from zoo.data.text.datasets import Hub
from zoo.data.text.tokenizer import open_tokenizer, train_tokenizer
from zoo.data.text.wikitext import open_wikitext
from zoo.errors import InputError
from zoo.pretrained.import_model import read_published


def read(corpus):
    return next(corpus.documents("train"))


REQUESTS = {
    "a dataset": lambda here: read(Hub(id="someone/stories").corpus()),
    "WikiText": lambda here: read(open_wikitext("wikitext-2", here)),
    "a tokenizer": lambda here: open_tokenizer("someone/model"),
    "a model": lambda here: read_published("someone/model"),
}


@pytest.fixture
def no_hub(request, tmp_path, monkeypatch):
    """A hub that accepts connections and never answers, or refuses them; it has nothing in its cache."""
    import datasets
    from huggingface_hub import constants

    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
        if getattr(request, "param", None) == "refuses":
            server.close()
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(datasets.config, "HF_ENDPOINT", endpoint)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
        monkeypatch.setattr(hub, "PATIENCE", 0.5)
        monkeypatch.setenv("ZOO_DATA", str(tmp_path / "zoo"))
        yield endpoint


@pytest.mark.parametrize(("kind", "no_hub"), [
    *((kind, "is silent") for kind in REQUESTS), ("a model", "refuses"),
], indirect=["no_hub"])  # fmt: skip
def test_a_hub_that_does_not_answer_is_one_message_within_seconds(no_hub, tmp_path, kind, capfd):
    from huggingface_hub import constants

    begun = time.perf_counter()
    with pytest.raises(InputError, match=f"no answer from {no_hub}") as caught:
        REQUESTS[kind](tmp_path)
    assert time.perf_counter() - begun < 4 and len(caught.value.problems) == 1
    assert capfd.readouterr() == ("", "") and not constants.HF_HUB_OFFLINE


def test_what_was_fetched_before_is_used_without_a_hub(no_hub, tmp_path):
    folder = tmp_path / "hub/models--someone--model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("a" * 40)
    tokenizer = train_tokenizer(["some text"], 260)
    (folder / "snapshots" / ("a" * 40)).mkdir(parents=True)
    tokenizer.save(folder / "snapshots" / ("a" * 40) / "tokenizer.json")
    assert open_tokenizer("someone/model").fingerprint == tokenizer.fingerprint
