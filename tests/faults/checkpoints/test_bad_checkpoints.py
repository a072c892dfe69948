"""A checkpoint that is damaged or of another program: one message that names the file and the damage."""

import io
import zipfile

import pytest
import torch
from small_run import MAPPING, change, refused, resume

import zoo
from zoo.recipe import resolve
from zoo.reports.evaluate import evaluate
from zoo.reports.fit import fit
from zoo.runs.checkpoint_file import read_checkpoint


def records_of(raw):
    """The name and content of every record, in the order of the file."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return [(record.filename, archive.read(record)) for record in archive.infolist()]


def archive_of(records):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in records:
            archive.writestr(name, content)
    return file.getvalue()


def file_of(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def flipped_in(name):
    def flipped(raw):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            begin = archive.getinfo(name).header_offset
        # After the header's 30 bytes come the name, and an extra field, whose length is at byte 28.
        at = begin + 30 + len(name) + int.from_bytes(raw[begin + 28 : begin + 30], "little")
        return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]

    return flipped


@pytest.mark.parametrize("broken, expected", [
    (lambda raw: raw[: len(raw) // 2], "damaged: the directory of its records is missing"),
    (flipped_in("archive/data/0"), "damaged: the checksum of archive/data/0 is wrong"),
    (lambda raw: b"name: a recipe\n", "not a checkpoint of the zoo"),
    (lambda raw: archive_of([("word/document.xml", b"<w/>")]), "torch cannot load it"),
    (lambda raw: file_of({"weight": torch.ones(2)}), "without hyper_parameters, state_dict, global_step"),
    (lambda raw: file_of({"hyper_parameters": {}, "state_dict": {}, "global_step": 1}), "without recipe"),
])  # fmt: skip
def test_damage_is_reported(last, broken, expected):
    last.write_bytes(broken(last.read_bytes()))
    for act in (lambda: zoo.load(last), lambda: evaluate([last]), lambda: resume(last.parent.parent)):
        refused(act, str(last), expected)


def test_a_remedy_is_reported(last):
    last.write_bytes(last.read_bytes()[:100])
    refused(lambda: zoo.load(last), "No other checkpoint lies next to it")
    (last.parent / "best.ckpt").write_bytes(b"")
    refused(
        lambda: zoo.load(last), "best.ckpt next to it may be intact: evaluate that, or copy it to last.ckpt"
    )


def test_one_bit_in_any_record_is_seen_and_torch_does_not_see_it(last):
    raw = last.read_bytes()
    unseen = 0
    for name, content in records_of(raw):
        last.write_bytes(flipped_in(name)(raw))
        refused(lambda: read_checkpoint(last), name)
        if content and name.startswith("archive/data/"):
            torch.load(last, weights_only=True)  # once this raises, the checksums need not be compared here
            unseen += 1
    assert unseen > 20


def test_a_recipe_of_a_larger_model_does_not_fit_the_weights(last):
    def enlarge(content):
        content["hyper_parameters"]["recipe"]["model"]["d_model"] = 32

    change(last, enlarge)
    refused(lambda: zoo.load(last), str(last), "do not fit its recipe: ", "size mismatch for ")


def test_weights_that_are_not_finite_are_reported(last):
    change(last, lambda content: content["state_dict"]["model.final_norm.weight"].fill_(float("inf")))
    for act in (lambda: zoo.load(last), lambda: fit(resolve(MAPPING, [f"init_from={last}"]))):
        refused(act, str(last), "model.final_norm.weight: NaN or infinite numbers")
