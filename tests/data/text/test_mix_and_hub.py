"""Corpora of corpora, and datasets that `datasets` loads by their id."""

import json

import pytest

from zoo.data.text import SPLITS
from zoo.data.text.datasets import Hub, Mix
from zoo.data.text.mix import mix
from zoo.data.text.sample import open_sample
from zoo.data.text.tokenizer import open_tokenizer
from zoo.data.text.wikitext import open_wikitext
from zoo.errors import InputError
from zoo.pretrained.import_model import read_published
from zoo.recipe import resolve


def sample(seed, documents=60, words=80):
    return {"name": "sample", "documents": documents, "words": words, "corpus_seed": seed}


def text_of(corpus, split="train"):
    return list(corpus.documents(split))


WRONG = [
    ({"of": ["wikitxt-2", "sample"]}, "data.of.0: no such dataset: 'wikitxt-2'; did you mean 'wikitext-2'"),
    ({"of": ["sample", {"name": "text", "rot": "x"}]}, "data.of.1: key 'rot' of 'text' is unknown"),
    ({"of": ["sample", {"name": "text", "vocab_size": 300}]}, "is set under `data`"),
    ({"of": ["sample", "wikitext-2"], "weights": [1, 0]}, "data.weights.1"),
]


class TestMix:
    def test_each_corpus_has_its_share_throughout_and_no_document_is_repeated(self):
        one, two = open_sample(80, 60, 0), open_sample(200, 60, 1)
        mixed = mix([one, two], [3, 1])
        for split in SPLITS:
            documents = text_of(mixed, split)
            first, second = set(text_of(one, split)), set(text_of(two, split))
            assert len(set(documents)) == len(documents)
            if split != "train":
                continue
            assert first <= set(documents) | {max(first - set(documents), key=len, default="")}
            counted = [
                [len(d.encode()) for d in documents[:end] if d in first] for end in (40, len(documents))
            ]
            for end, of_first in zip((40, len(documents)), counted, strict=True):
                total = sum(len(d.encode()) for d in documents[:end])
                assert sum(of_first) / total == pytest.approx(0.75, abs=0.03)
            assert sum(d not in first | second for d in documents) <= 1  # the one that was cut
        assert mixed.split() == "of the bytes 0.75 sample, 0.25 sample"
        assert documents == text_of(mix([one, two], [0.75, 0.25]), split)
        assert documents != text_of(mix([one, two], [1, 1]), split)

    def test_the_same_twice_is_refused(self):
        with pytest.raises(InputError, match="named twice"):
            mix([open_sample(9, 60, 0), open_sample(9, 60, 0)], [1, 1])

    def test_one_tokenizer_for_all(self, tmp_path):
        tokens = Mix(of=(sample(0), sample(1)), cache=str(tmp_path), vocab_size=300).tokens()
        assert tokens.tokenizer.vocab_size == 300 and len(tokens.streams["train"]) > 1000

    def test_wrong_options_are_reported_with_their_key(self):
        model = {"kind": "decoder", "encoding": "none", "d_model": 8, "num_layers": 1, "num_heads": 1}
        common = {"name": "x", "model": model, "optimizer": {"lr": 1e-3}}
        for options, message in WRONG:
            data = {"name": "mix", "sequence_length": 32, "batch_size": 4, **options}
            with pytest.raises(InputError) as caught:
                resolve({**common, "data": data, "trainer": {"max_steps": 1}})
            assert message in str(caught.value)


TEXTS = [f"Document number {i} of a table." for i in range(60)]


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A folder as a repository of the hub is laid out, opened by the real `datasets`."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "zoo"))
    folder = tmp_path / "repository"
    (folder / "plain").mkdir(parents=True)
    for split, some in (("train", TEXTS[:50]), ("test", TEXTS[50:])):
        lines = "".join(json.dumps({"content": text}) + "\n" for text in some)
        (folder / "plain" / f"{split}.jsonl").write_text(lines)
    (folder / "README.md").write_text("---\nconfigs:\n- config_name: plain\n  data_dir: plain\n---\n")
    return folder


class TestHub:
    def test_a_dataset_by_configuration_and_column(self, table):
        corpus = Hub(id=str(table), config="plain", column="content").corpus()
        found = {split: text_of(corpus, split) for split in SPLITS}
        assert found["test"] == TEXTS[50:] and len(found["valid"]) == 2
        assert sorted(found["train"] + found["valid"]) == sorted(TEXTS[:50])
        with pytest.raises(InputError, match=r"no column 'contents'; did you mean 'content'\?"):
            text_of(Hub(id=str(table), config="plain", column="contents").corpus())

    def test_a_part_of_a_dataset(self, table):
        options = {"id": str(table), "config": "plain", "column": "content"}
        part = Hub(**options, split="train[:20%]+test[-1:]").corpus()
        assert sorted(text for split in SPLITS for text in text_of(part, split)) == sorted(
            TEXTS[:10] + TEXTS[-1:]
        )
        fetched = Hub(**options, files="plain/te*.jsonl").corpus()
        assert sorted(text for split in SPLITS for text in text_of(fetched, split)) == sorted(TEXTS[50:])
        assert part.identity != fetched.identity
        with pytest.raises(InputError, match=r"data\.name: .* is not available: Unknown split"):
            text_of(Hub(**options, split="tran[:20%]").corpus())


REQUESTS = {
    "a dataset": lambda here: next(Hub(id="someone/stories").corpus().documents("train")),
    "WikiText": lambda here: next(open_wikitext("wikitext-2", here).documents("train")),
    "a tokenizer": lambda here: open_tokenizer("someone/model"),
    "a model": lambda here: read_published("someone/model"),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_without_a_network_there_is_one_message(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError) as caught:
        REQUESTS[kind](tmp_path)
    assert len(caught.value.problems) == 1
