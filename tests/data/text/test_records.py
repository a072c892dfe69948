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
from zoo.data.text.files import find_files, open_text, read_documents
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


@pytest.mark.parametrize(("kind", "packed"), [
    (".txt", ""), (".jsonl", ".gz"), (".json", ".bz2"), (".csv", ""), (".parquet", ""),
])  # fmt: skip
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
    with pytest.raises(InputError, match=r"test\.md is named as a split, and trainer\.txt is in no split"):
        splits(tmp_path)
    assert len([*open_text(tmp_path).whole().documents("valid")]) == len(TEXTS) + 3


BY_NAME = {
    "train and test": ("train.jsonl", "test.jsonl"),
    "capitals": ("TRAIN_001.jsonl", "TRAIN_002.jsonl", "TEST_001.jsonl"),
    "train, eval": ("train.jsonl", "eval.jsonl"),
    "TinyStories": ("TinyStoriesV2-GPT4-train.jsonl", "TinyStoriesV2-GPT4-valid.jsonl"),
    "C4": ("c4-train.00000-of-01024.jsonl", "c4-validation.00000-of-00008.jsonl"),
    "corpus.train": ("corpus.train.jsonl", "corpus.valid.jsonl", "corpus.test.jsonl"),
    "folders": ("TRAIN/1.jsonl", "TEST/1.jsonl", "TEST/train.jsonl"),
    "all three": ("train.jsonl", "valid.jsonl", "test.jsonl"),
}


def write_named(root, names):
    """A folder of files with 50 documents each, which begin with the name of their file."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({"text": f"{name} {n} the mill by the river"}) for n in range(50))
        (root / name).write_text("\n".join(lines))


@pytest.mark.parametrize("names", BY_NAME.values(), ids=BY_NAME)
def test_a_document_of_a_file_named_as_held_out_is_not_trained_on(names, tmp_path):
    write_named(tmp_path, names)
    found = splits(tmp_path)
    assert len(all_of(found)) == 50 * len(names) and all(map(found.get, ("train", "valid")))
    of_train = {
        name for name in names if name.lower().startswith("train") or "-train" in name or ".train" in name
    }
    assert {text.split()[0] for text in found["train"]} == of_train
    assert not {text.split()[0] for text in found["test"]} & of_train


AMBIGUOUS = [
    ("corpus.jsonl", "test.jsonl"),
    ("my-corpus.jsonl", "my-corpus-test.jsonl"),
    ("part-00000-of-00001.jsonl", "test-00000-of-00001.jsonl"),
    ("train.jsonl", "more.jsonl", "A Test of Time.jsonl"),
    ("valid.jsonl", "test.jsonl"),
]


@pytest.mark.parametrize("names", AMBIGUOUS)
def test_files_that_may_be_held_out_or_not_are_refused(names, tmp_path):
    write_named(tmp_path, names)
    with pytest.raises(InputError, match=r"data\.root: .*(in no split|it needs train)"):
        splits(tmp_path)
    assert len([*open_text(tmp_path).whole().documents("valid")]) == 50 * len(names)


def test_titles_among_novels_are_no_splits(tmp_path):
    names = [f"Novel {word}.txt" for word in "abcdefgh"] + ["A Test of Time.txt", "Train Dreams.txt"]
    for name in names:
        (tmp_path / name).write_text(f"{name} is a novel")
    with pytest.raises(InputError, match=r"A Test of Time\.txt is named as a split"):
        splits(tmp_path)
    (tmp_path / names.pop()).unlink()
    found = splits(tmp_path)
    assert [len(found[split]) for split in SPLITS] == [7, 1, 1] and len(all_of(found)) == len(names)


def test_a_folder_is_read_without_what_lies_there_by_accident(tmp_path):
    own, far = tmp_path / "own", tmp_path / "far"
    for folder in (own / ".ipynb_checkpoints", own / "data", far):
        folder.mkdir(parents=True)
    for name in ("a.txt", "b.txt", "data/c.txt"):
        (own / name).write_text(f"{name} is a chapter")
    (own / ".ipynb_checkpoints/a.txt").write_text("DRAFT")
    (own / "._b.txt").write_bytes(b"\0\5\x16\7AppleDouble")
    (own / "README.md").write_text("CARD of a data set")
    (far / "d.txt").write_text("d.txt lies on another disk")
    (own / "more").symlink_to(far)
    (own / "data/around").symlink_to(own)
    assert [text.split()[0] for text in all_of(splits(own))] == ["a.txt", "b.txt", "d.txt", "data/c.txt"]
    assert [file.name for file in find_files(own)] == ["a.txt", "b.txt", "c.txt", "d.txt"]


def test_one_record_over_lines_and_a_name_with_colons(tmp_path):
    (tmp_path / "one.json").write_text('{\n "text":\n "one record"\n}\n')
    assert [*read_documents(tmp_path / "one.json", "text")] == ["one record"]
    (tmp_path / "Part 1::The mill.txt").write_text("The mill.")
    assert [*read_documents(tmp_path / "Part 1::The mill.txt", "text")] == ["The mill."]


def test_a_quotation_mark_between_tabs_is_text(tmp_path):
    (tmp_path / "a.tsv").write_text('id\ttext\n1\t"Yes, he said.\n2\t"No." "No?"\n')
    assert [*read_documents(tmp_path / "a.tsv", "text")] == ['"Yes, he said.', '"No." "No?"']


@pytest.mark.parametrize(
    ("name", "content"), [("b.jsonl", b""), ("b.csv", b"text,id\n"), ("b.parquet", None)]
)
def test_an_empty_shard_is_a_warning(name, content, tmp_path, capsys):
    (tmp_path / "a.jsonl").write_bytes(FORMATS[".jsonl"])
    (tmp_path / name).write_bytes(no_rows() if content is None else content)
    assert all_of(splits(tmp_path)) == sorted(TEXTS)
    assert capsys.readouterr().err == f"warning: {tmp_path / name} holds no text\n"


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
    ("a.jsonl", b'{"text": 1}\n', r"a\.jsonl:1: data\.column: column 'text' has int and not text"),
    ("a.jsonl", b'{"text": "One."}\n\n{"text": "Two."\n', r"a\.jsonl:3: cannot be read: not JSON: Expecting"),
    ("a.jsonl", b'{"text": "One."}\n"Two."\n', r"a\.jsonl:2: is not a record with a field 'text'"),
    ("a.jsonl", b'\n{"text": "One \\ud83d"}\n', r"a\.jsonl:2: cannot be read: .*surrogates not allowed"),
    ("a.jsonl", b'{"text": "na\xefve"}\n', r"a\.jsonl: byte 12 \(0xef\) is not UTF-8 text"),
    ("a.json", b'[\n{"text": "One."},\n{"text": "Two."\n]', r"a\.json:4: cannot be read: not JSON"),
    ("a.json", b'[\n{"text": "One."},\n{"text": 2}\n]', r"a\.json: record 2: data\.column: .* int"),
    ("a.csv", b"id,text\n1,One.\n2,Two.,more\n", r"a\.csv:3: cannot be read: more fields than the header"),
    ("a.csv", b'id,text\n1,One.\n2,"Two.\n', r"a\.csv:3: cannot be read: unexpected end of data"),
    ("a.csv", b"id,body\n1,One.\n", r"a\.csv: data\.column: no column 'text'"),
    ("a.csv", b"text,id,text\nOne.,1,Two.\n", r"a\.csv: data\.column: 2 columns 'text'"),
    ("a.tsv", b'id\ttext\n1\t"One.\nTwo."\n', r"a\.tsv:3: cannot be read: fewer fields than the header"),
    ("a.parquet", b"PAR1 and nothing", r"a\.parquet: cannot be read: .*[Pp]arquet"),
    ("a.txt.gz", gzip.compress(b"One.\n" * 1000, mtime=0)[:40], r"a\.txt\.gz: cannot be read: "),
    *((name, content, "data.root: holds no text") for name, content in (
        ("a.jsonl", b"\n\n"), ("a.json", b"[]"), ("a.csv", b"text,id\n"), ("a.parquet", no_rows()),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), FAULTS)
def test_an_unreadable_file_is_named_with_the_cause(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        splits(tmp_path / name)
    assert len(caught.value.problems) == 1 and "\n" not in str(caught.value)
