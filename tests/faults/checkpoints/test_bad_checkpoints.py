"""A checkpoint that is damaged or of another program: one message, and nothing is lost."""

import io
import json
import os
import pickle
import struct
import zipfile
from random import Random

import checkpoint_mutations
import pytest
import torch
from small_run import MAPPING, change, refused, resume

import zoo
from zoo import cli
from zoo.errors import InputError
from zoo.recipe import resolve
from zoo.reports.evaluate import evaluate
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.runs.load import load_task
from zoo.training.fit import fit

# What kind of file it is


def other_archive(raw):
    return checkpoint_mutations.archive_of([("word/document.xml", b"<w/>")])


def script(raw):
    """As `torch.jit.save` writes it: torch.load would hand it to torch.jit."""
    return checkpoint_mutations.archive_of(
        [*checkpoint_mutations.records_of(raw), ("archive/constants.pkl", b"")]
    )


def safetensors(raw):
    header = json.dumps({"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


def flipped_in(name):
    def flipped(raw):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            begin = archive.getinfo(name).header_offset
        # After the header's 30 bytes come the name, and an extra of the length told at byte 28.
        at = begin + 30 + len(name) + int.from_bytes(raw[begin + 28 : begin + 30], "little")
        return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]

    return flipped


def old_torch(raw):
    file = io.BytesIO()
    torch.save({"weight": torch.ones(1)}, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


@pytest.mark.parametrize("broken, expected", [
    (lambda raw: b"", "damaged: "),
    (lambda raw: raw[: len(raw) // 2], "damaged: the directory of its records is missing or broken"),
    (lambda raw: raw[:-1], "damaged: the directory of its records is missing or broken"),
    (lambda raw: bytes(len(raw)), "damaged: "),
    (flipped_in("archive/data/0"), "damaged: what is in archive/data/0 is not what was written there"),
    (flipped_in("archive/data.pkl"), "damaged: what is in archive/data.pkl is not what was written there"),
    (lambda raw: b"\n" + raw, "not a checkpoint of the zoo"),
    (lambda raw: b"name: a recipe\n", "not a checkpoint of the zoo"),
    (lambda raw: pickle.dumps({"a": 1}), "not a checkpoint of the zoo"),
    (old_torch, "not a checkpoint of the zoo"),
    (safetensors, "not a checkpoint of the zoo"),
    (other_archive, "torch cannot load it"),
    (script, "torch cannot load it"),
    (lambda raw: checkpoint_mutations.file_of({"weight": torch.ones(2)}), "hyper_parameters: "),
    (lambda raw: checkpoint_mutations.file_of({"state_dict": {}, "pytorch-lightning_version": "2.6.6"}),
     "hyper_parameters: "),
    (lambda raw: checkpoint_mutations.file_of([1, 2]), "not a checkpoint of the zoo: content: "),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_reported(last, broken, expected):
    last.write_bytes(broken(last.read_bytes()))
    for act in (lambda: zoo.load(last), lambda: evaluate([last]), lambda: resume(last.parent.parent)):
        refused(act, str(last), expected)


def test_what_can_be_done_is_reported(last):
    last.write_bytes(last.read_bytes()[:100])
    refused(lambda: zoo.load(last), "No other checkpoint lies beside it")
    (last.parent / "best.ckpt").write_bytes(b"")
    refused(
        lambda: zoo.load(last), "best.ckpt beside it may be intact: evaluate that, or copy it to last.ckpt"
    )


def test_one_bit_in_any_record_is_seen_and_torch_does_not_see_it(last):
    raw = last.read_bytes()
    unseen = 0
    for name, content in checkpoint_mutations.records_of(raw):
        last.write_bytes(flipped_in(name)(raw))
        refused(lambda: read_checkpoint(last), name)
        if content and name.startswith("archive/data/"):
            torch.load(last, weights_only=True)  # once this raises, the checksums need not be compared here
            unseen += 1
    assert unseen > 20


@pytest.mark.parametrize("what", ["folder", "pipe", "device"])
def test_what_is_no_file_is_reported_and_not_waited_for(here, what):
    path = here / "thing.ckpt"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    refused(
        lambda: read_checkpoint(path),
        str(path),
        "it is a folder" if what == "folder" else "a pipe or a device",
    )
    refused(lambda: zoo.load(path), str(path))


# What its pickle asks for


def pickled_as(raw, pickled):
    (name, _), *others = checkpoint_mutations.records_of(raw)
    return checkpoint_mutations.archive_of([(name, pickled), *others])


@pytest.mark.parametrize("pickled, expected", [
    (b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".", "more than 50 deep"),
    (b"\x80\x02" + b"(l" * 200_000 + b"t.", "not read, "),
    (b"\x80\x02Nr\xff\xff\xff\xff.", "not a checkpoint of the zoo"),  # an index of the memo: 64 GiB
    # bytearray(64 GiB)
    (b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x10\x85R.", "more memory than"),
    (b"\x80\x05\x96\x04\x00\x00\x00\x00\x00\x00\x00abcd.", "not read, "),
    (b"", "torch cannot load it"),
])  # fmt: skip
def test_a_pickle_that_would_take_all_memory_is_reported(last, pickled, expected):
    last.write_bytes(pickled_as(last.read_bytes(), pickled))
    with pytest.raises(InputError, match=expected):
        read_checkpoint(last)


def test_a_storage_longer_than_its_record_is_never_read(last):
    for seed in range(20):
        raw = checkpoint_mutations.larger_storage(last.read_bytes(), Random(seed))
        (last.parent / "longer.ckpt").write_bytes(raw)
        refused(lambda: read_checkpoint(last.parent / "longer.ckpt"), "damaged: torch cannot load it")


def test_a_recipe_of_a_larger_model_is_reported_before_it_is_built(last):
    def enlarge(**values):
        return lambda content: content["hyper_parameters"]["recipe"]["model"].update(values)

    def lengthen(content):
        enlarge(encoding={"name": "learned"})(content)
        content["hyper_parameters"]["recipe"]["data"]["sequence_length"] = 2**26  # a table of 4 GiB

    whole = last.read_bytes()
    for how, expected in (
        (lengthen, "large"),  # told by the encoding, or by who builds it
        (enlarge(d_ff=2**50), "model.d_ff"),
        (enlarge(num_layers=10**7), "model.num_layers"),
        (enlarge(d_model=2**40), "model.d_model"),
    ):
        last.write_bytes(whole)
        change(last, how)
        refused(lambda: load_task(last), str(last), expected)
    last.write_bytes(whole)
    change(last, lambda content: content["hyper_parameters"].update(vocab_size=2**40))
    refused(lambda: load_task(last), "size mismatch for model.tokens.weight")


def test_weights_that_are_no_numbers_are_reported(last):
    def spoil(value):
        return lambda content: content["state_dict"]["model.final_norm.weight"].fill_(value)

    whole = last.read_bytes()
    for value in (float("nan"), float("inf")):
        last.write_bytes(whole)
        change(last, spoil(value))
        for act in (
            lambda: zoo.load(last),
            lambda: resume(last.parent.parent),
            lambda: fit(resolve(MAPPING, [f"init_from={last}"])),
        ):
            refused(act, str(last), "model.final_norm.weight holds NaN or infinite numbers")
    last.write_bytes(whole)
    change(last, lambda content: content["state_dict"].update(
        {"model.final_norm.weight": torch.ones(16, dtype=torch.long)}))  # fmt: skip
    refused(lambda: zoo.load(last), "model.final_norm.weight holds int64 and not float32")


def test_the_command_line_reports_it(run, last, capsys):
    last.write_bytes(last.read_bytes()[:5000])
    for command in (
        ["evaluate", str(run)],
        ["fit", "--recipe", str(run / "recipe.yaml"), "--out", str(run), "--resume"],
    ):
        assert cli.main(command) == 2
        reported = capsys.readouterr().err
        assert reported.startswith(f"{last}: damaged: ") and len(reported.splitlines()) == 1
