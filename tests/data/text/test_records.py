"""Documents in common file formats."""

import bz2
import csv
import gzip
import io
import json
import random

import datasets
import pytest

from zoo.data import open_data
from zoo.data.text import SPLITS
from zoo.data.text.files import open_text, read_documents
from zoo.data.text.splits import BY_POSITION, NAMED
from zoo.errors import InputError
from zoo.recipe import resolve

TEXTS = [f'Document {number}, "quoted";\nwith Naïve 戦場\tin two lines.' for number in range(40)]


def jsonl():
    return "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(TEXTS)).encode()


def csv_file():
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerows([["id", "text"], *([n, text] for n, text in enumerate(TEXTS))])
    return out.getvalue().encode()


def parquet():
    out = io.BytesIO()
    datasets.Dataset.from_dict({"id": [*range(len(TEXTS))], "text": TEXTS}).to_parquet(out)
    return out.getvalue()


FORMATS = {
    ".txt": "\n<|endoftext|>\n".join(TEXTS).encode(),
    ".jsonl": jsonl(),
    ".json": json.dumps([{"text": text} for text in TEXTS]).encode(),
    ".csv": csv_file(),
    ".parquet": parquet(),
}


PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}


def splits(root, column="text"):
    corpus = open_text(root, column)
    return {split: [text.rstrip("\n") for text in corpus.documents(split)] for split in SPLITS}


def all_of(found):
    return sorted(text for texts in found.values() for text in texts)


@pytest.mark.parametrize(
    ("kind", "packed"),
    [(".txt", ""), (".jsonl", ".gz"), (".json", ".bz2"), (".csv", ""), (".parquet", "")],
)
def test_every_format_gives_the_same_documents_in_the_same_splits(kind, packed, tmp_path):
    file = tmp_path / f"all{kind}{packed}"
    file.write_bytes(PACK[packed](FORMATS[kind]))
    found = splits(file)
    assert all_of(found) == sorted(TEXTS)
    assert {split: len(texts) for split, texts in found.items()} == {"train": 36, "valid": 2, "test": 2}
    assert splits(tmp_path) == found


def test_a_folder_mixes_formats(tmp_path):
    for kind in (".jsonl", ".csv", ".parquet"):
        (tmp_path / f"part{kind}").write_bytes(FORMATS[kind])
    assert all_of(splits(tmp_path)) == sorted(3 * TEXTS)


def test_names_of_files_and_folders_are_splits(tmp_path):
    (tmp_path / "validation").mkdir()
    (tmp_path / "train-00000-of-00001.jsonl").write_bytes(FORMATS[".jsonl"])
    (tmp_path / "validation" / "a.txt").write_text("Valid.")
    (tmp_path / "test.md").write_text("Test.")
    assert splits(tmp_path) == {"train": TEXTS, "valid": ["Valid."], "test": ["Test."]}
    assert open_text(tmp_path).split() == NAMED
    (tmp_path / "trainer.txt").write_text("whose?")
    with pytest.raises(InputError, match=r"trainer\.txt: .*in no split"):
        open_text(tmp_path)


@pytest.mark.parametrize("several", [True, False])
def test_a_folder_that_datasets_saved(several, tmp_path):
    table = datasets.Dataset.from_dict({"body": TEXTS})
    parts = {"train": table, "validation": table.select([1, 2])}
    (datasets.DatasetDict(parts) if several else table).save_to_disk(tmp_path / "saved")
    found = splits(tmp_path / "saved", "body")
    if several:
        assert found == {"train": TEXTS, "valid": TEXTS[1:3], "test": []}
    else:
        assert all_of(found) == sorted(TEXTS)
    with pytest.raises(InputError, match=r"data\.column: .*no column 'bodi'; did you mean 'body'"):
        splits(tmp_path / "saved", "bodi")


def test_one_long_document_is_cut_by_position(tmp_path):
    chance = random.Random(0)
    text = "".join(f"{chance.random()} is a line\n" for _ in range(1000))
    (tmp_path / "input.txt").write_text(text)
    corpus = open_text(tmp_path / "input.txt")
    found = {split: "".join(corpus.documents(split)) for split in SPLITS}
    assert found["train"] + found["valid"] + found["test"] == text
    assert all(part.endswith("\n") for part in found.values())
    assert len(found["train"]) == pytest.approx(0.9 * len(text), abs=40)
    assert len(found["valid"]) == pytest.approx(0.05 * len(text), abs=40)
    assert corpus.split() == BY_POSITION


def test_the_fingerprint_states_that_one_document_was_cut(here, mapping):
    (here / "input.txt").write_text("".join(f"line {number} of one text\n" for number in range(500)))
    own = {"data": {**mapping("text")["data"], "name": "text", "root": "input.txt"}}
    for key in ("documents", "words"):
        own["data"].pop(key)
    source = open_data(resolve({**mapping("text"), **own}))
    assert source.fingerprint["split"] == BY_POSITION


def test_only_the_column_of_the_text_is_read(tmp_path):
    """Its neighbours may have another type in each record, and blank lines may lie between."""
    records = [
        {"text": text, "meta": other}
        for text, other in zip(TEXTS, ([1], "s", 2.5, {}, None) * 8, strict=True)
    ]
    file = tmp_path / "a.jsonl"
    file.write_text("{}\n\n" + "\n\n".join(map(json.dumps, records)) + "\n\n")
    assert [*read_documents(file, "text")] == TEXTS
    (tmp_path / "a.json").write_text(json.dumps(records, indent=1))
    assert [*read_documents(tmp_path / "a.json", "text")] == TEXTS
    (tmp_path / "a.csv").write_text("id,text\n1,007\n2,NA\n3,\n")
    assert [*read_documents(tmp_path / "a.csv", "text")] == ["007", "NA"]


def no_rows():
    out = io.BytesIO()
    datasets.Dataset.from_dict({"text": []}).to_parquet(out)
    return out.getvalue()


FAULTS = [
    ("a.jsonl", b'{"txt": "1"}\n{"txt": "2"}\n', r"a\.jsonl: data\.column: no column 'text'; .* 'txt'"),
    ("a.jsonl", b'{"txt": "1"}\n' * 2000 + b"[", r"a\.jsonl: data\.column: no column 'text'; .* 'txt'"),
    ("a.jsonl", b'{"text": 1}\n', r"a\.jsonl:1: data\.column: column 'text' has int and not text"),
    ("a.jsonl", b'{"text": "One."}\n\n{"text": "Two."\n', r"a\.jsonl:3: cannot be read: not JSON: Expecting"),
    ("a.jsonl", b'{"text": "One."}\n"Two."\n', r"a\.jsonl:2: is not a record with a field 'text'"),
    ("a.jsonl", b'\n{"text": "One \\ud83d"}\n', r"a\.jsonl:2: cannot be read: .*surrogates not allowed"),
    ("a.jsonl", b'{"text": "na\xefve"}\n', r"a\.jsonl: byte 12 \(0xef\) is not UTF-8 text"),
    (
        "a.json",
        b'[\n{"text": "One."},\n{"text": "Two."\n]',
        r"a\.json:4: cannot be read: not JSON: Expecting",
    ),
    ("a.csv", b"id,text\n1,One.\n2,Two.,more\n", r"a\.csv:3: cannot be read: more fields than the header"),
    ("a.csv", b'id,text\n1,One.\n2,"Two.\n', r"a\.csv:3: cannot be read: unexpected end of data"),
    ("a.csv", b"id,body\n1,One.\n", r"a\.csv: data\.column: no column 'text'"),
    ("a.parquet", b"PAR1 and nothing", r"a\.parquet: cannot be read: .*[Pp]arquet"),
    ("a.txt.gz", gzip.compress(b"One.\n" * 1000, mtime=0)[:40], r"a\.txt\.gz: cannot be read: "),
    ("a.jsonl", b"", r"a\.jsonl: holds no record"),
    ("a.jsonl", b"\n\n", r"a\.jsonl: holds no record"),
    ("a.json", b"[]", r"a\.json: holds no record"),
    ("a.csv", b"", r"a\.csv: holds no record"),
    ("a.csv", b"text,id\n", r"a\.csv: holds no record"),
    ("a.parquet", no_rows(), r"a\.parquet: holds no record"),
]


@pytest.mark.parametrize(("name", "content", "message"), FAULTS)
def test_an_unreadable_file_is_named_with_the_cause(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        splits(tmp_path / name)
    assert len(caught.value.problems) == 1 and "\n" not in str(caught.value)
