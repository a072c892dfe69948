"""Tokens in files of others: nanoGPT's, llm.c's and Megatron's, written here by their formats."""

import csv
import json
import re
import struct

import numpy as np
import pytest
import yaml
from tiny_recipes import tiny

from zoo import cli, registry
from zoo.contract import dataset_laws
from zoo.contract.dataset_laws import LAWS, DatasetSubject
from zoo.data import open_data
from zoo.data.text.tokenizer import train_tokenizer
from zoo.errors import InputError
from zoo.recipe import resolve
from zoo.training.fit import fit

DOCUMENTS = {
    "train": [
        f"The {n} th of the rivers ran past {n * n} houses and {n * 7} gates.\n" * 4 for n in range(40)
    ],
    "valid": [f"A house near river {n} had {n * 3} doors.\n" * 6 for n in range(9)],
}


def raw(path, documents, kind="<u2"):
    path.write_bytes(np.concatenate(documents).astype(kind).tobytes())


def with_header(path, tokens, mark=20240520, version=1, kind="<u2", count=None):
    head = np.zeros(256, "<i4")
    head[:3] = mark, version, len(tokens) if count is None else count
    path.write_bytes(head.tobytes() + np.asarray(tokens).astype(kind).tobytes())


def megatron(path, documents, kind="<u2", code=8, sentences=1):
    """Each document in so many sequences."""
    raw(path, documents, kind)
    parts = [part for one in documents for part in np.array_split(one, sentences)]
    sizes = [len(part) for part in parts]
    places = np.cumsum([0, *sizes])[:-1] * np.dtype(kind).itemsize
    borders = np.arange(0, len(parts) + 1, sentences)
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(parts), len(borders))
    index += np.array(sizes, "<i4").tobytes() + places.astype("<i8").tobytes()
    path.with_suffix(".idx").write_bytes(index + borders.astype("<i8").tobytes())


def shards(folder, documents):
    """Of 300 tokens each, as modded-nanogpt's: the end token opens each document, which spans shards."""
    tokens = np.concatenate([np.roll(one, 1) for one in documents["train"]])
    for number, start in enumerate(range(0, len(tokens), 300)):
        with_header(folder / f"fineweb_train_{number:06}.bin", tokens[start : start + 300])
    with_header(
        folder / "fineweb_val_000000.bin", np.concatenate([np.roll(one, 1) for one in documents["valid"]])
    )


WRITERS = {
    "nanogpt": lambda folder, made: [
        raw(folder / f"{name}.bin", made[split]) for name, split in (("train", "train"), ("val", "valid"))
    ],
    "llm.c": lambda folder, made: [
        with_header(folder / f"{split}.bin", np.concatenate(made[split])) for split in ("train", "valid")
    ],
    "llama3.c": lambda folder, made: [
        with_header(folder / f"{split}.bin", np.concatenate(made[split]), 20240801, 7, "<u4")
        for split in made
    ],
    "megatron": lambda folder, made: [
        megatron(folder / f"my_{split}_text_document.bin", made[split], "<i4", 4, 2) for split in made
    ],
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The tokenizer and the documents in its tokens, each with its end token."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = train_tokenizer(DOCUMENTS["train"], 300)
    tokenizer.save(folder / "tokenizer.json")
    return folder / "tokenizer.json", {
        split: [np.append(tokenizer.encode(text), tokenizer.end_token) for text in texts]
        for split, texts in DOCUMENTS.items()
    }


@pytest.fixture
def opened(written, mapping, tmp_path):
    """The data of a folder, `here/tokens`, which exists."""
    (tmp_path / "tokens").mkdir()

    def opened(*sets, name="tokens", root=tmp_path / "tokens"):
        text = mapping("text")
        data = {key: text["data"][key] for key in ("sequence_length", "batch_size")}
        data |= {
            "name": name,
            "root": str(root),
            "tokenizer": str(written[0]),
            "cache": str(tmp_path / "cache"),
        }
        return open_data(resolve({**text, "data": data}, sets))

    return opened


@pytest.fixture
def text(written, tmp_path):
    """The same documents as text."""
    for split, texts in DOCUMENTS.items():
        (tmp_path / "text" / split).mkdir(parents=True)
        lines = "".join(json.dumps({"text": one}) + "\n" for one in texts)
        (tmp_path / "text" / split / "one.jsonl").write_text(lines)
    return tmp_path / "text"


@pytest.mark.parametrize("form", WRITERS)
def test_tokens_and_documents_are_those_of_the_text(form, opened, written, text, tmp_path):
    WRITERS[form](tmp_path / "tokens", written[1])
    ours, same = opened(), opened(name="text", root=text)
    for split in ("train", "valid", "test"):
        one, other = ours.stream(split), same.stream(split)
        assert np.array_equal(one[:], other[:]) and np.array_equal(one.document_starts, other.document_starts)
        assert np.array_equal(
            ours.units.bytes_of(one[:].astype(int)), same.units.bytes_of(other[:].astype(int))
        )
    assert ours.fingerprint["tokenizer"] == same.fingerprint["tokenizer"]
    (own,) = (tmp_path / "cache").glob("*/train.parts.json")
    assert not [*own.parent.glob("*.tokens")]  # nothing is copied
    whole = opened("evaluate.split=all").stream("all")
    assert len(whole) == sum(len(same.stream(split)) for split in ("train", "valid"))
    assert len(whole.document_starts) == len(DOCUMENTS["train"]) + len(DOCUMENTS["valid"])


def test_the_fingerprint_is_that_of_tokens_and_documents(opened, written, tmp_path):
    found = []
    for form, write in WRITERS.items():
        (tmp_path / form).mkdir()
        write(tmp_path / form, written[1])
        found.append(opened(root=tmp_path / form).fingerprint["corpus"])
    assert len({*found}) == 1
    changed = {**written[1], "valid": written[1]["valid"][::-1]}
    WRITERS["nanogpt"](tmp_path / "tokens", changed)
    assert opened().fingerprint["corpus"] != found[0]


def test_documents_span_shards(opened, written, text, tmp_path):
    """Of modded-nanogpt, where the end token opens each document."""
    shards(tmp_path / "tokens", written[1])
    ours, same = opened(), opened(name="text", root=text)
    assert len([*(tmp_path / "tokens").iterdir()]) > 5
    for split in ("train", "valid"):
        one, other = ours.stream(split), same.stream(split)
        assert np.array_equal(one[1:], other[:-1])
        assert np.array_equal(one.document_starts[1:], other.document_starts[1:] + 1)
        for start, stop in ((0, 301), (299, 900), (600, 600), (len(one) - 3, len(one) + 9)):
            assert np.array_equal(one[start:stop], one[:][start:stop])


def test_the_last_documents_of_train_validate_where_no_file_does(opened, written, tmp_path):
    megatron(tmp_path / "tokens" / "my_text_document.bin", written[1]["train"])
    sizes = np.cumsum([len(one) for one in written[1]["train"][::-1]])
    for root in ("tokens", "tokens/my_text_document", "tokens/my_text_document.bin"):
        ours = opened(f"data.valid_tokens={sizes[3]}", root=tmp_path / root)
        assert len(ours.stream("valid")) == sizes[3] and len(ours.stream("test")) == 0
        assert (
            len(opened(f"data.valid_tokens={sizes[3] - 1}", root=tmp_path / root).stream("valid")) == sizes[3]
        )
    more = opened(f"data.valid_tokens={sizes[3] + 1}")
    assert len(more.stream("valid")) == sizes[4] and len(more.stream("valid").document_starts) == 5
    both = np.concatenate([more.stream("train")[:], more.stream("valid")[:]])
    assert np.array_equal(both, np.concatenate(written[1]["train"]))


@pytest.mark.parametrize("packing", ["packed", "separate"])
def test_a_run_has_the_losses_of_one_on_the_text(packing, written, text, mapping, unmeasured, tmp_path):
    files, losses = tmp_path / "files", []
    files.mkdir()
    WRITERS["megatron" if packing == "separate" else "nanogpt"](files, written[1])
    for name, root in (("tokens", files), ("text", text)):
        data = {"name": name, "root": str(root), "tokenizer": str(written[0]), "packing": packing}
        data |= {"sequence_length": 16, "batch_size": 4, "cache": str(tmp_path / "cache")}
        sets = ["trainer.max_steps=3", "trainer.log_every_n_steps=1", "checkpoint.every_n_steps=3"]
        fit(resolve({**mapping("text"), "data": data}, sets), tmp_path / "runs" / name)
        with (tmp_path / "runs" / name / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        losses.append([(key, row[key]) for row in rows for key in row if "loss" in key and row[key]])
    assert len(losses[0]) > 3 and losses[0] == losses[1]


def damaged(folder, made):
    """A folder for each fault, with its options and what the message says."""
    train, valid = made["train"], made["valid"]

    def folder_of(name, write=WRITERS["nanogpt"]):
        (folder / name).mkdir()
        write(folder / name, made)
        return folder / name

    odd = folder_of("odd")
    (odd / "train.bin").write_bytes((odd / "train.bin").read_bytes() + b"1")
    yield odd, [], "odd/train.bin: data.root: has .* bytes for .* tokens of 2 bytes: it is"
    large = folder_of("large")
    raw(large / "val.bin", [valid[0], [300]])
    yield (
        large,
        [],
        f"large/val.bin: data.root: token {len(valid[0])} is 300, and data.tokenizer has 300 tokens",
    )
    below = folder_of("below", WRITERS["megatron"])
    megatron(below / "my_train_text_document.bin", [np.array([5, -1, 0])], "<i4", 4)
    yield below, [], "token 1 is -1"
    alone = folder_of("alone")
    (alone / "val.bin").unlink()
    yield alone, [], "alone: data.root: has files for train, and needs train and valid .* data.valid_tokens"
    yield alone, ["data.valid_tokens=1000000"], f"leaves none of {len(train)} documents to train"
    yield folder_of("both"), ["data.valid_tokens=9"], "has files for train and valid, and needs"
    hollow = folder_of("hollow")
    (hollow / "val.bin").write_bytes(b"")
    yield hollow, [], "hollow: data.root: holds no tokens"
    wide = folder_of("wide")
    raw(wide / "val.bin", valid, "<u4")
    yield wide, [], "wide/val.bin: data.root: every second token is 0"
    (folder / "empty").mkdir()
    yield folder / "empty", [], "no file of tokens"
    yield folder / "gone", [], "gone: data.root: no file of tokens"
    short = folder_of("short", WRITERS["megatron"])
    raw(short / "my_valid_text_document.bin", valid[:-1], "<i4")
    yield (
        short,
        [],
        "my_valid_text_document.bin: data.root: has .* of 4 bytes by my_valid_text_document.idx",
    )
    cut = folder_of("cut", WRITERS["megatron"])
    index = cut / "my_train_text_document.idx"
    index.write_bytes(index.read_bytes()[:-9])
    yield cut, [], "my_train_text_document.idx: data.root: is no index of Megatron"
    open_ = folder_of("open", WRITERS["megatron"])
    megatron(open_ / "my_train_text_document.bin", [one[:-1] for one in train], "<i4", 4)
    yield open_, [], "do not end with token 0, as data.tokenizer has it; write the data set with --append-eod"
    header = folder_of("header", WRITERS["llm.c"])
    with_header(header / "train.bin", train[0], count=9)
    yield header, [], "for 9 tokens of 2 bytes by its header"
    yield header, ["data.tokenizer=no/such/tokenizer.json"], "data.tokenizer: .*not a tokenizer"
    yield header, ["data.root=null"], "say which folder or file"


def test_wrong_files_end_with_one_message_before_training(written, mapping, here, capsys):
    recipe = {key: value for key, value in mapping("text").items() if key != "data"}
    found = 0
    for root, sets, said in damaged(here, written[1]):
        data = {"name": "tokens", "root": str(root), "tokenizer": str(written[0]), "cache": "cache"}
        recipe["data"] = {**data, "sequence_length": 16, "batch_size": 4}
        (here / "r.yaml").write_text(yaml.safe_dump(recipe))
        code = cli.main(["fit", "r.yaml", *(part for one in sets for part in ("--set", one))])
        message = capsys.readouterr().err.strip()
        assert code == 2 and re.search(said, message) and "Traceback" not in message, (root, message)
        assert len(message.splitlines()) == 1 and not (here / "runs").exists(), message
        found += 1
    assert found == 16
    del recipe["data"]["tokenizer"]
    (here / "r.yaml").write_text(yaml.safe_dump(recipe))
    assert cli.main(["fit", "r.yaml"]) == 2
    assert "r.yaml:" in (message := capsys.readouterr().err) and "data.tokenizer: " in message


def test_a_mixture_takes_no_tokens():
    spec = {"name": "mix", "of": ["sample", "tokens"], "sequence_length": 8}
    with pytest.raises(InputError, match=r"data\.of\.1: no such dataset: 'tokens'"):
        tiny(spec)


def test_the_laws_of_datasets_hold(written, here, monkeypatch):
    monkeypatch.setattr(dataset_laws, "SOME", 64)
    WRITERS["nanogpt"](here, written[1])
    options = {"root": str(here), "tokenizer": str(written[0])}
    subject = DatasetSubject(registry.datasets.describe("tokens"), options, here / "cache")
    for law in LAWS:
        if law.does_not_apply(subject) is None:
            findings = list(law.trial(subject))
            assert findings and all(one.passed for one in findings), (law.name, findings)
