"""Prompts with answers, as batches, drawn on demand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from zoo.data.blocks import NOT_SCORED, Batched
from zoo.data.draws import Chance, Draws, is_held_out
from zoo.data.questions import AHEAD, PADDING, Questions
from zoo.errors import InputError, Problem


class Answers(Batched):
    """`size` examples of a task, drawn on demand, in rows of `length` tokens.

    `answers[i]` is {"tokens": int64 [length], "targets": int64 [length]}: tokens are prompt and answer
    without its last, padded on the right; targets are -100 except where a token of the answer is predicted,
    one position before it. Example i depends on (task, options, seed, split, i), and with `sizes` "all" on
    the length too.

    The prompts of "valid" and "test" are held out: training with any seed draws none of them
    (`zoo.data.draws`). Sizes with too few prompts are trained on in full; "valid" leaves them out where
    larger ones fit, and `seen_in_training` is their share.

    Args:
        questions: the task.
        name: key of its draws.
        length: tokens of a row.
        size: number of examples.
        seed: seed of the draws.
        split: train, valid or test; each has draws of its own.
        sizes: "all" draws the size of each example uniformly from the smallest (where prompts are held out,
            the smallest held-out one) to the largest that fits; "largest" always takes the largest, so that
            all examples are about the same length.

    Raises:
        InputError: not even the smallest size fits.
    """

    def __init__(
        self, questions: Questions, name: str, length: int, size: int, *, seed: int, split: str,
        sizes: str = "largest",
    ):  # fmt: skip
        self.questions, self.length, self.size = questions, length, size
        self.largest = questions.largest(length)
        if not self.largest:
            least = questions.tokens(questions.smallest)
            raise InputError(Problem(f"{length} tokens are too few for {name}, which needs at least {least}"))
        self.held_out = split != "train"
        smallest = questions.smallest
        if self.held_out and questions.held_out_from <= self.largest:
            smallest = questions.held_out_from
        self.choices = self.largest - smallest + 1 if sizes == "all" else 1
        self._draws = Draws("answers", name, seed, split)

    def __len__(self) -> int:
        return self.size

    def example(self, index: int) -> tuple[list[int], list[int]]:
        """Prompt and answer of an example, in tokens."""
        chance = Chance(self._draws, int(index), AHEAD)
        # The size is drawn even where there is one choice, so that the following draws are the same.
        size = self.largest - chance.below(self.choices)
        while True:
            prompt, answer = self.questions.example(size, chance)
            # The loop ends: among this many prompts some are on either side.
            if size < self.questions.held_out_from or is_held_out(prompt) == self.held_out:
                return prompt, answer

    def seen_in_training(self, length: int) -> float:
        """The share of these examples, from 0 to 1, that training at a length may have drawn too: those of
        sizes that training draws and that have too few prompts to hold any out."""
        sizes = range(self.largest - self.choices + 1, self.largest + 1)
        stop = min(sizes.stop, self.questions.held_out_from, self.questions.largest(length) + 1)
        return len(range(sizes.start, stop)) / len(sizes)

    def batch(self, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        tokens = np.full((len(indices), self.length), PADDING, dtype=np.int64)
        targets = np.full((len(indices), self.length), NOT_SCORED, dtype=np.int64)
        for row, index in enumerate(indices):
            prompt, answer = self.example(index)
            given = [*prompt, *answer[:-1]]
            tokens[row, : len(given)] = given
            targets[row, len(prompt) - 1 : len(given)][self.questions.asked] = answer[self.questions.asked]
        return {"tokens": torch.from_numpy(tokens), "targets": torch.from_numpy(targets)}
