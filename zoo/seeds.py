"""Seeds that depend on what is seeded and on nothing else."""

import hashlib


def seed_of(*parts: object) -> int:
    """A 63-bit seed for (seed, name, ...), the same on every machine and in every process.

    Python's own `hash` of a text differs from process to process.
    """
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
