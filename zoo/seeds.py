"""Seeds that depend on what is seeded and on nothing else."""

import hashlib
from typing import TypeVar

Integers = TypeVar("Integers")


def seed_of(*parts: object) -> int:
    """A 63-bit seed for (seed, name, ...), the same on every machine and in every process.

    Python's own `hash` of a text differs from process to process.
    """
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def mixed(numbers: Integers) -> Integers:
    """Hashes of integers below 2**32, elementwise in a tensor of int64; different ones of different integers.

    Two rounds of xor, shift and multiplication. Factors are below 2**31, so that no product overflows.
    """
    numbers = ((numbers ^ (numbers >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    numbers = ((numbers ^ (numbers >> 12)) * 0x297A2D39) & 0xFFFFFFFF
    return numbers ^ (numbers >> 15)
