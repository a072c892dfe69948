"""What a checkpoint's pickle asks for, found out without running any of it."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from typing import Any

import torch

OPCODES = frozenset((
    "PROTO", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1",
    "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "DICT", "LIST", "SETITEM", "SETITEMS",
    "APPEND", "APPENDS", "BINPUT", "LONG_BINPUT",
    "BINGET", "LONG_BINGET", "GLOBAL", "BINPERSID", "REDUCE", "BUILD",
))  # fmt: skip
"""What `torch.save` writes of plain data. Others name classes by other ways, or ask for memory at will."""
REBUILT = frozenset({"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter", "torch.Size"})
STORAGES = {
    f"torch.{kind}Storage": torch.tensor([], dtype=dtype).element_size()
    for kind, dtype in (
        ("Double", torch.float64), ("Float", torch.float32), ("Half", torch.float16),
        ("BFloat16", torch.bfloat16), ("Long", torch.int64), ("Int", torch.int32), ("Short", torch.int16),
        ("Char", torch.int8), ("Byte", torch.uint8), ("Bool", torch.bool), ("ComplexFloat", torch.complex64),
        ("ComplexDouble", torch.complex128),
    )
}  # fmt: skip
"""Kinds of storage by name, with the bytes of an element."""
DTYPES = frozenset(str(value) for value in vars(torch).values() if isinstance(value, torch.dtype))


class NotPlain(Exception):
    """A pickle asks for more than tensors and plain data; the text names it."""


def storages_in(pickled: bytes) -> dict[str, int]:
    """The storages that a pickle of `torch.save` refers to, with the bytes that it says each has.

    Whoever loads it must have compared that with the records. torch 2.13 does so too; that an older one does
    not read past the end of a record is not relied on.

    Raises:
        NotPlain: it names a class or a function other than torch's few for tensors. None is ever looked up.
        Exception: of many kinds: it is damaged.
    """
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        if opcode.name not in OPCODES:
            raise NotPlain(f"the opcode {opcode.name}")
        if opcode.name == "GLOBAL":
            must_be_plain(argument.replace(" ", "."))
        if opcode.name == "LONG_BINPUT" and argument > count:
            # A memo is as long as its highest index.
            raise ValueError("an index beyond the end")
    reader = _Inert(io.BytesIO(pickled))
    reader.load()
    return reader.storages


def must_be_plain(name: str) -> None:
    if (
        name not in REBUILT
        and name not in STORAGES
        and name not in DTYPES
        and name != "collections.OrderedDict"
    ):
        raise NotPlain(name)


class _Anything:
    """Stands in the place of whatever a pickle names."""

    def __init__(self, *arguments: Any):
        pass


class _Inert(pickle.Unpickler):
    """Reads a pickle without importing, calling or reading anything; notes the storages."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.storages: dict[str, int] = {}

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        must_be_plain(full)
        if full in STORAGES:
            return full
        return OrderedDict if name == "OrderedDict" else _Anything

    def persistent_load(self, pid: Any) -> _Anything:
        word, kind, key, _, count = pid
        if word != "storage" or kind not in STORAGES or type(key) is not str or type(count) is not int:
            raise ValueError("a storage that is none")
        size = count * STORAGES[kind]
        if self.storages.setdefault(key, size) != size:
            raise ValueError(f"storage {key} is of two sizes")
        return _Anything()
