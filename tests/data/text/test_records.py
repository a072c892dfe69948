"""Documents in the formats that people have."""

import bz2
import gzip
import io
import json
import lzma
import random

import datasets
import pyarrow as pa
import pytest

from zoo.data import open_data
from zoo.data.text import SPLITS, records
from zoo.data.text.plain_text import BY_POSITION, NAMED, open_text
from zoo.errors import InputError
from zoo.recipe import resolve

TEXTS = [f'Document {number}, "quoted";\nwith Naïve 戦場\tin two lines.' for number in range(40)]


def jsonl(column="text"):
    return "".join(json.dumps({"id": n, column: text}) + "\n" for n, text in enumerate(TEXTS)).encode()


def table(delimiter):
    import csv

    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerows([["id", "text"], *([n, text] for n, text in enumerate(TEXTS))])
    return out.getvalue().encode()


def parquet():
    out = io.BytesIO()
    datasets.Dataset.from_dict({"id": [*range(len(TEXTS))], "text": TEXTS}).to_parquet(out)
    return out.getvalue()


FORMATS = {
    ".txt": "\n<|endoftext|>\n".join(TEXTS).encode(),
    ".md": "\n<|endoftext|>\n".join(TEXTS).encode(),
    ".jsonl": jsonl(),
    ".json": json.dumps([{"text": text} for text in TEXTS]).encode(),
    ".csv": table(","),
    ".tsv": table("\t"),
    ".parquet": parquet(),
}


def zstd(raw):
    return pa.Codec("zstd").compress(raw, asbytes=True)


PACK = {
    "": bytes, ".gz": gzip.compress, ".zst": zstd, ".bz2": bz2.compress, ".xz": lzma.compress,
}  # fmt: skip


def splits(root, column="text"):
    corpus = open_text(root, column)
    return {split: [text.rstrip("\n") for text in corpus.documents(split)] for split in SPLITS}


def all_of(found):
    return sorted(text for texts in found.values() for text in texts)


@pytest.mark.parametrize("packed", PACK)
@pytest.mark.parametrize("kind", FORMATS)
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
def test_what_datasets_has_saved(several, tmp_path):
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


def test_the_card_says_that_one_document_was_cut(here, mapping):
    (here / "input.txt").write_text("".join(f"line {number} of one text\n" for number in range(500)))
    own = {"data": {**mapping("text")["data"], "name": "text", "root": "input.txt"}}
    for key in ("documents", "words"):
        own["data"].pop(key)
    source = open_data(resolve({**mapping("text"), **own}))
    assert source.fingerprint["split"] == BY_POSITION


@pytest.mark.parametrize(("name", "content", "said"), [
    ("a.jsonl", b'{"text": "One."}\n{"text": "Two."\n', r"a\.jsonl:2: the line is not JSON"),
    ("a.jsonl", b'{"text": "1"}\n\n{"txt": "2"}\n', r"a\.jsonl:3: data\.column: no column 'text'; .* 'txt'"),
    ("a.jsonl", b'{"text": "One."}\n{"text": 7}\n', r"a\.jsonl:2: data\.column: text is 7 and not text"),
    ("a.jsonl", b'{"text": "One."}\n["Two."]\n', r"a\.jsonl:2: data\.column: .*no record"),
    ("a.json", b'[{"text": "One."},\n {"text": }]', r"a\.json:2: is not JSON"),
    ("a.json", b'[{"text": "One."},\n{"text": "Two."},\n', r"a\.json:3: is not JSON: the list does not end"),
    ("a.json", b'[{"text": "One."},\n{"text": "Tw', r"a\.json:2: is not JSON: Unterminated"),
    ("a.json", b'[{"text": "na\xefve"}]', r"a\.json: is not UTF-8"),
    ("a.json", b'[1, 22, "3"]', r"a\.json: data\.column: record 1: 1 is no record"),
    ("a.json", b"[" * 100_000, r"a\.json:1: is not JSON: nested too deeply"),
    ("a.json", b'[{"text": "One."}, {"body": "Two."}]', r"a\.json: data\.column: record 2: no column"),
    ("a.csv", b"id,text\n1,One.\n2,Two.,more\n", r"a\.csv:3: 3 fields, and the header has 2"),
    ("a.csv", b"id,body\n1,One.\n", r"a\.csv:1: data\.column: no column 'text'"),
    ("a.parquet", b"PAR1 and nothing", r"a\.parquet: is not Parquet"),
    ("a.txt.gz", gzip.compress(b"One.\n" * 1000, mtime=0)[:40], r"a\.txt\.gz: damaged"),
    ("a.txt.gz", b"no gzip", r"a\.txt\.gz: .*damaged"),
    ("a.txt.zst", zstd(b"One.\n" * 1000)[:12] + b"xxxxxx", r"a\.txt\.zst: damaged"),
    ("a.jsonl", b'{"text": "na\xefve"}\n', r"a\.jsonl: byte 12 \(0xef\) is not UTF-8"),
])  # fmt: skip
def test_what_cannot_be_read_is_named_by_file_and_line(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=said):
        splits(tmp_path / name)


def test_bad_records_of_a_file_are_told_together(tmp_path):
    lines = [
        '{"text": "fine"}',
        "{",
        "",
        "[1]",
        '{"text": null}',
        '{"txt": "x"}',
        '{"text": 3}',
        '{"text": ""}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError) as caught:
        splits(tmp_path)
    told = [problem.where.rpartition("/")[2] for problem in caught.value.problems]
    assert told == ["a.jsonl:2", "a.jsonl:4", "a.jsonl:6", "a.jsonl:7"]
    (tmp_path / "a.jsonl").write_text("{\n" * 100)
    with pytest.raises(InputError) as caught:
        splits(tmp_path)
    assert len(caught.value.problems) == 10


def test_a_list_larger_than_what_is_read_at_once(tmp_path):
    texts = ["ä" * (records.PIECE - 30), 'é\\\n"' * 2 * records.PIECE, *TEXTS]
    content = [{"text": text, "number": 12345} for text in texts]
    for indent, escaped in ((None, True), (1, False)):
        (tmp_path / "a.json").write_text(json.dumps(content, indent=indent, ensure_ascii=escaped))
        assert list(records.read_documents(tmp_path / "a.json", "text")) == texts
