"""Held-out prompts: what evaluation and validation ask and no training was asked.

Generated examples are drawn, not stored, so a fixed hash of the prompt decides on which side of the split it is:
training redraws until a prompt is on its side, evaluation and validation until it is on theirs. The side
depends on nothing else, so that runs of any seed, length or number of steps are judged on prompts that none
of them was trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

ONE_IN = 4
"""One prompt in so many is held out. Fewer would repeat themselves in the evaluation of short prompts; more
would be lost to training."""

SAMPLED = 256
"""Prompts that are drawn to see whether there are enough of them to hold some out."""

DIFFERENT = 230
"""How many of those must differ: nine in ten, which about 1200 equally likely prompts give. With fewer prompts
than that training needs them all, and evaluation would ask the same few over and over."""


def is_held_out(prompt: Sequence[int] | np.ndarray) -> bool:
    """Whether a prompt, given by its tokens, is for evaluation and validation and not for training."""
    # A cryptographic hash: checksums such as CRC are linear over GF(2), so that they would tell the two sides
    # apart by the parity of bits of the prompt, which is what some tasks ask for.
    tokens = np.asarray(prompt, dtype="<i8").tobytes()
    return hashlib.blake2b(tokens, digest_size=1).digest()[0] < 256 // ONE_IN


def enough_to_hold_out(prompts: Iterable[Hashable]) -> bool:
    """Whether prompts are of so many kinds that some can be held out, judged by `SAMPLED` random ones."""
    return len(set(prompts)) >= DIFFERENT
