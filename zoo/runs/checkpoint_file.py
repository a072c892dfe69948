"""The file of a checkpoint: whole, of the zoo, and nothing but data, or told by one message.

What can be wrong is looked for from the outside in: the kind of file, the archive (torch does not compare the
checksums of a record that it reads), the pickle in it, and what that gives.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from zoo.errors import InputError
from zoo.runs.card import card_faults
from zoo.runs.plain_pickle import NotPlain, storages_in

PIECE = 1 << 20
"""Bytes of a record that are read at once."""
MOST_VALUES, MOST_DEPTH, MOST_AGAIN, LONGEST_TEXT = 500_000, 50, 1000, 100_000
"""What holds more values, is nested deeper or has a longer text is none: it would hang its reader."""
ARCHIVE, END, PICKLE = b"PK\x03\x04", b"PK\x05\x06", "data.pkl"
BESIDES = frozenset(
    {"version", "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id"}
)
"""The records that torch writes beside the pickle and the storages."""
FOREIGN = {
    b"\x80": "a bare pickle, which may hold code, and is not read",
    b"GGUF": "a GGUF file",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip file",
}
"""How files of other programs begin."""


TABLE, BLOCKS = "model.tokens.weight", "model.blocks."
"""The names of the token embedding, and of all that is in a layer."""


class _Damaged(Exception):
    """It is not what was written; the text says in what."""


class _Foreign(Exception):
    """It was never a checkpoint of the zoo; the text says what it is instead."""


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU, as `trainer.save_checkpoint` gave it.

    `hyper_parameters` ("recipe", "vocab_size"), `state_dict`, `global_step` and, where there is one,
    `zoo_card` are of the types that they have in every checkpoint of the zoo; the rest is plain data.

    Raises:
        InputError: damaged, not a checkpoint of the zoo, or holding more than data.
    """
    try:
        with _opened(path) as file:
            size = _looks_like_an_archive(file)
            _must_be_whole(file)
            file.seek(0)
            content = _loaded(file)
        _must_be_bounded(content, size)
        _must_be_of_the_zoo(content)
    except NotPlain as error:
        raise InputError(
            f"{path}: not read, since it holds more than weights and plain data ({error}), and reading that "
            f"could run code. A checkpoint of the zoo holds none: take one from whom you trust"
        ) from error
    except _Foreign as error:
        raise InputError(
            f"{path}: not a checkpoint of the zoo: {error}. What can be read is what `fit` writes, "
            f"RUN/checkpoints/last.ckpt or best.ckpt"
        ) from error
    except _Damaged as error:
        raise InputError(f"{path}: damaged: {error}. {instead_of(path)}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return content


def instead_of(path: Path) -> str:
    """What can be done about a checkpoint that is of no use: a sentence."""
    others = sorted(file.name for file in path.parent.glob("*.ckpt") if file.name != path.name)
    if others:
        return (
            f"{' and '.join(others)} beside it may be whole: evaluate that, or copy it to {path.name} and "
            f"continue from there"
        )
    return "No other checkpoint lies beside it: take it from a copy, or train anew"


def _opened(path: Path) -> IO[bytes]:
    # Opening a pipe would wait for a writer, and a device may never end.
    if not stat.S_ISREG(path.stat().st_mode):
        raise _Foreign("it is a folder" if path.is_dir() else "it is no file but a pipe or a device")
    return path.open("rb")


def _looks_like_an_archive(file: IO[bytes]) -> int:
    """The size of the file in bytes. Raises _Foreign or _Damaged where it does not even begin like one."""
    beginning = file.read(1024)
    size = file.seek(0, 2)
    if not size:
        raise _Damaged("it is empty")
    if beginning.startswith(ARCHIVE):
        return size
    if not beginning.strip(b"\0"):
        raise _Damaged("it begins with zeros, as a file does whose writing was cut short")
    for sign, kind in FOREIGN.items():
        if beginning.startswith(sign):
            raise _Foreign(f"it is {kind}")
    if beginning[8:9] == b"{" and int.from_bytes(beginning[:8], "little") < size:
        raise _Foreign("it is a safetensors file, which holds weights and no recipe")
    if all(byte >= 32 or byte in b"\t\n\r\f" for byte in beginning):
        raise _Foreign("it is a text")
    raise _Foreign("it does not begin like one; if it was one, it is damaged")


def _must_be_whole(file: IO[bytes]) -> None:
    """Compare every record with its checksum, the archive with torch's ways, the pickle with the records.

    Raises:
        _Damaged, _Foreign, NotPlain: it is not whole, not torch's, or holds more than data.
    """
    try:
        archive = zipfile.ZipFile(file)
    except Exception as error:  # zipfile raises many kinds on a damaged directory
        raise _Damaged(
            "its directory, the last part of the file, is missing or broken, as when it was cut short"
        ) from error
    with archive:
        sizes = _records(archive, file.seek(0, 2))
        try:
            for record in archive.infolist():
                with archive.open(record) as opened:
                    while opened.read(PIECE):
                        pass
            pickled = archive.read(next(r for r in archive.infolist() if _short(r) == PICKLE))
        except Exception as error:
            raise _Damaged(f"what is in {record.filename} is not what was written there") from error
    try:
        storages = storages_in(pickled)
    except NotPlain:
        raise
    except Exception as error:  # a pickle that is not one raises anything
        raise _Damaged(f"its {PICKLE} cannot be read ({type(error).__name__})") from error
    for key, wanted in storages.items():
        if sizes.get(f"data/{key}") != wanted:
            raise _Damaged(f"its record data/{key} has not the {wanted} bytes that belong there")


def _records(archive: zipfile.ZipFile, size: int) -> dict[str, int]:
    """The bytes of each record, by name without the archive's own.

    Whatever torch does not write is refused: its reader and ours might not see the same in it.
    """
    records = sorted(archive.infolist(), key=lambda record: record.header_offset)
    names = [_short(record) for record in records]
    top = {record.filename.partition("/")[0] for record in records}
    if len(top) != 1 or PICKLE not in names:
        raise _Foreign("it is a zip archive that torch.save did not write")
    strange = [name for name in names if name not in (*BESIDES, PICKLE) and not name.startswith("data/")]
    if strange:
        raise _Foreign(f"it is an archive that holds {strange[0][:80]!r}")
    # torch takes names that differ in capitals for one.
    if len({name.lower() for name in names}) != len(names):
        raise _Damaged("it holds two records of one name")
    ends = [*(record.header_offset for record in records[1:]), archive.start_dir]
    file = archive.fp
    file.seek(-len(END) - 18, os.SEEK_END)
    if records[0].header_offset or file.read(len(END)) != END:
        raise _Damaged("something stands before its first record, or after its last")
    for record, end in zip(records, ends, strict=True):
        plain = record.compress_type == zipfile.ZIP_STORED and not record.flag_bits & 1
        if (
            not plain
            or record.file_size != record.compress_size
            or record.header_offset + record.file_size > min(end, size)
        ):
            raise _Damaged(f"its record {record.filename} is packed, or larger than the file")
    return {_short(record): record.file_size for record in records}


def _short(record: zipfile.ZipInfo) -> str:
    return record.filename.partition("/")[2]


def _loaded(file: IO[bytes]) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises anything on a damaged file
        text = str(error).strip().split("\n")[0][:200]
        raise _Damaged(f"torch cannot load it ({type(error).__name__}: {text})") from error


def _must_be_bounded(content: Any, size: int) -> None:
    """Refuse what would keep a reader busy for ever, such as a list that holds itself.

    Raises _Damaged.
    """
    stack, seen, again = [(content, 0)], set(), 0
    for _ in range(MOST_VALUES):
        if not stack:
            return
        value, depth = stack.pop()
        if isinstance(value, dict | list | tuple | set):
            if depth == MOST_DEPTH:
                raise _Damaged(f"what it holds is nested more than {MOST_DEPTH} deep")
            again += bool(value) and id(value) in seen
            if again > MOST_AGAIN:
                raise _Damaged("it holds the same list over and over")
            seen.add(id(value))
            stack += ((one, depth + 1) for one in _inside(value))
        elif isinstance(value, Tensor):
            # One element can be said to stand for a thousand million.
            if value.layout is not torch.strided or value.numel() * value.element_size() > size:
                raise _Damaged(f"a tensor of shape {list(value.shape)} is more than the file can hold")
        elif isinstance(value, str):
            if len(value) > LONGEST_TEXT:
                raise _Damaged(f"it holds a text of {len(value)} characters")
        elif type(value) is int and not -(2**63) <= value < 2**63:
            raise _Damaged("it holds a number of more than 64 bits")
    raise _Damaged(f"it holds more than {MOST_VALUES} values")


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    else:
        yield from value


def _must_be_of_the_zoo(content: Any) -> None:
    """Raises _Foreign where the zoo's own parts are missing, or _Damaged where they have other types."""
    if not isinstance(content, dict):
        raise _Foreign(f"it holds a {type(content).__name__}")
    if content and all(isinstance(value, Tensor) for value in content.values()):
        raise _Foreign("it holds weights alone, and no recipe")
    settings = content.get("hyper_parameters")
    if not isinstance(settings, dict) or "recipe" not in settings or "state_dict" not in content:
        of = "a Lightning checkpoint of another project" if "pytorch-lightning_version" in content else "data"
        raise _Foreign(f"it is {of}: it holds no recipe, or no weights")
    wrong = list(_wrong_parts(content, settings))
    if wrong:
        raise _Damaged("; ".join(wrong[:6]))


def _wrong_parts(content: dict[str, Any], settings: dict[str, Any]) -> Iterator[str]:
    recipe, weights, card = settings["recipe"], content["state_dict"], content.get("zoo_card")
    model = recipe.get("model") if isinstance(recipe, dict) else None
    if not isinstance(model, dict) or "encoding" not in model:
        yield "its hyper_parameters.recipe is no recipe with a model"
    if not _is_count(settings.get("vocab_size")) or settings["vocab_size"] < 1:
        yield "its hyper_parameters.vocab_size is no number of tokens"
    named = isinstance(weights, dict) and weights
    if not named or not all(isinstance(n, str) and isinstance(w, Tensor) for n, w in weights.items()):
        yield "its state_dict is not made of named weights"
    elif isinstance(model, dict) and (misfit := _misfit(model, settings.get("vocab_size"), weights)):
        yield f"its weights do not fit its recipe: {misfit}"
    if not _is_count(content.get("global_step")):
        yield "its global_step is no number of steps"
    if card is not None:
        yield from (f"its zoo_card.{fault}" for fault in card_faults(card))


def _misfit(model: dict[str, Any], vocab_size: Any, weights: dict[str, Tensor]) -> str | None:
    """Where the largest sizes of a recipe are not those of the weights: such a model is never built."""
    table = weights.get(TABLE)
    if table is not None and list(table.shape) != [vocab_size, model.get("d_model")]:
        asked = f"{vocab_size} tokens and model.d_model {model.get('d_model')}"
        return f"size mismatch for {TABLE}: it is {list(table.shape)}, and the recipe has {asked}"
    blocks = {name.split(".")[2] for name in weights if name.startswith(BLOCKS)}
    if len(blocks) != model.get("num_layers"):
        return f"weights of {len(blocks)} layers, and model.num_layers is {model.get('num_layers')}"
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
