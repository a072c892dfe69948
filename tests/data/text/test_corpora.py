"""Corpora: whole documents, exact text, and messages that help when there is none."""

from types import SimpleNamespace

import pytest

from zoo import registry
from zoo.data.text import SPLITS, wikitext
from zoo.data.text.wikitext import HUB_SPLITS, articles
from zoo.errors import InputError

WIKI = {
    "train": (
        " \n = First = \n \n Text of the first , <unk> . \n \n = = Part = = \n \n More . \n"
        " = Goals ; A = \n = Points ; B = \n \n End of the table . \n \n"
        " \n = Second = \n \n Naïve 戦場 . \n \n = Third = \n \n"
    ),
    "valid": " \n = Valid = \n \n Words . \n",
    "test": " \n = Test = \n \n Words ! \n \n \n",
}
TITLES = ["First", "Second", "Third"]


def open_corpus(data):
    """The corpus of a dataset, by its name and options."""
    options = {key: value for key, value in vars(data).items() if key != "name"}
    return registry.datasets.load(data.name)(**options).corpus()


def read(corpus):
    return {split: list(corpus.documents(split)) for split in SPLITS}


def data(name, root, **more):
    return SimpleNamespace(name=name, root=None if root is None else str(root), **more)


@pytest.fixture
def wiki(tmp_path):
    folder = tmp_path / "wikitext-2"
    folder.mkdir()
    for split, text in WIKI.items():
        (folder / f"wiki.{split}.tokens").write_text(text, newline="", encoding="utf-8")
    return tmp_path


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    import datasets
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """A repository of the hub's layout on disk, opened by the real `datasets`."""
    import datasets

    folder = tmp_path / "hub"
    readme = ["---", "configs:"]
    for name in ("wikitext-2-v1", "wikitext-103-v1"):
        readme += [f"- config_name: {name}", "  data_files:"]
        for split, text in WIKI.items():
            # There a row is a line, and a blank one is empty.
            rows = ["" if line.isspace() else line for line in text.splitlines(keepends=True)]
            file = f"{name}/{HUB_SPLITS[split]}-00000-of-00001.parquet"
            (folder / name).mkdir(parents=True, exist_ok=True)
            datasets.Dataset.from_dict({"text": rows}).to_parquet(folder / file)
            readme += [f"  - split: {HUB_SPLITS[split]}", f"    path: {file}"]
    (folder / "README.md").write_text("\n".join([*readme, "---", ""]))
    monkeypatch.setattr(wikitext, "REPOSITORY", str(folder))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


class TestWikiText:
    def test_documents_joined_are_the_file(self, wiki):
        for root in (wiki, wiki / "wikitext-2"):
            corpus = open_corpus(data("wikitext-2", root))
            for split in SPLITS:
                assert "".join(corpus.documents(split)) == WIKI[split]

    def test_documents_are_articles(self, wiki):
        documents = list(open_corpus(data("wikitext-2", wiki)).documents("train"))
        assert [document.split(" = ")[1] for document in documents] == TITLES
        assert all(document.startswith(" \n = ") for document in documents)

    def test_a_text_without_titles_is_one_document(self):
        lines = ["no title\n", " \n", " = = Part = = \n", " \n", "last"]
        assert list(articles(lines)) == ["".join(lines)]
        assert list(articles([])) == []

    def test_a_fetched_corpus_is_that_of_the_files(self, wiki, stand_in, tmp_path):
        here = read(open_corpus(data("wikitext-2", wiki)))
        for name in ("wikitext-2", "wikitext-103"):
            corpus = open_corpus(data(name, tmp_path / "empty"))
            assert read(corpus) == here
            assert corpus.newline_is_word

    def test_one_wikitext_is_not_read_as_the_other(self, wiki, no_network):
        with pytest.raises(InputError, match="the folder that contains wikitext-103/"):
            read(open_corpus(data("wikitext-103", wiki / "wikitext-2")))

    def test_a_missing_file_of_three_is_an_error(self, wiki):
        (wiki / "wikitext-2/wiki.test.tokens").unlink()
        with pytest.raises(InputError, match=r"wikitext-2: .*lacks wiki\.test\.tokens"):
            open_corpus(data("wikitext-2", wiki))

    def test_the_default_root_is_ZOO_DATA(self, wiki, monkeypatch):
        monkeypatch.setenv("ZOO_DATA", str(wiki))
        assert next(open_corpus(data("wikitext-2", None)).documents("test")) == WIKI["test"]


def all_of(splits):
    return [document for documents in splits.values() for document in documents]


class TestPlainText:
    def write(self, folder, texts):
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return folder

    def splits(self, root):
        corpus = open_corpus(data("text", root))
        return {split: list(corpus.documents(split)) for split in SPLITS}

    @pytest.mark.parametrize(("count", "sizes"), [(2, (1, 1, 0)), (3, (1, 1, 1)), (100, (90, 5, 5))])
    def test_every_document_is_in_one_split(self, tmp_path, count, sizes):
        texts = {f"{i % 3}/{i}.txt": f"Document {i}.\r\nIts end" for i in range(count)}
        splits = self.splits(self.write(tmp_path, texts))
        assert tuple(len(splits[split]) for split in SPLITS) == sizes
        assert sorted(all_of(splits)) == sorted(texts.values())

    def test_neither_names_nor_order_decide_the_split(self, tmp_path):
        texts = [f"Document {i}" for i in range(40)]
        one = self.splits(self.write(tmp_path / "a", {f"{i:02}.txt": text for i, text in enumerate(texts)}))
        two = self.splits(self.write(tmp_path / "b", {f"{99 - i}.txt": text for i, text in enumerate(texts)}))
        assert {k: sorted(v) for k, v in one.items()} == {k: sorted(v) for k, v in two.items()}

    def test_copies_of_a_document_are_in_one_split(self, tmp_path):
        splits = self.splits(self.write(tmp_path, {f"{i}.txt": f"Text {i % 20}" for i in range(60)}))
        for text in {text for texts in splits.values() for text in texts}:
            assert sorted(texts.count(text) for texts in splits.values()) == [0, 0, 3]

    def test_a_file_with_separators(self, tmp_path):
        text = "".join(f"Story {i}\nwith <|endoftext|> inside\n<|endoftext|>\n" for i in range(10))
        splits = self.splits(self.write(tmp_path, {"all.stories": text}) / "all.stories")
        documents = sorted(all_of(splits))
        assert documents == [f"Story {i}\nwith <|endoftext|> inside\n" for i in range(10)]
        assert len(splits["valid"]) == len(splits["test"]) == 1

    def test_a_single_document_beside_a_test_file_is_divided_between_train_and_validation(self, tmp_path):
        train = "".join(f"line {i}\n" for i in range(1000))
        splits = self.splits(self.write(tmp_path, {"train.txt": train, "test.txt": "Other"}))
        assert splits["test"] == ["Other"]
        assert "".join(splits["train"] + splits["valid"]) == train
        assert 0.08 < len(splits["valid"][0]) / len(train) < 0.11

    def test_other_files_and_empty_ones_are_skipped(self, tmp_path):
        texts = {"a.txt": "A", "b.TXT": "\ufeffB", "c.py": "C", "d.txt": "", "e.txt": " \n "}
        assert sorted(all_of(self.splits(self.write(tmp_path, texts)))) == ["A", "B"]

    def test_text_that_is_not_utf8_is_reported_with_file_and_byte(self, tmp_path):
        self.write(tmp_path, {"a.txt": "fine", "b.txt": b"line\nna\xefve\n"})
        with pytest.raises(InputError, match=r"b\.txt: byte 7 \(0xef\) is not UTF-8"):
            self.splits(tmp_path)

    @pytest.mark.parametrize("texts, message", [
        ({}, "no text file"),
        ({"a.txt": "same", "b.txt": "same"}, r"only one document.*<\|endoftext\|>"),
    ])  # fmt: skip
    def test_too_few_documents_are_refused(self, tmp_path, texts, message):
        with pytest.raises(InputError, match=message):
            self.splits(self.write(tmp_path, texts))

    def test_no_root(self, tmp_path):
        with pytest.raises(InputError, match="no such folder or file"):
            self.splits(tmp_path / "none")
        with pytest.raises(InputError, match=r"data\.root"):
            open_corpus(data("text", None))
