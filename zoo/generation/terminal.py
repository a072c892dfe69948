"""Generated text on a terminal or in a pipe."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from zoo.console import progress_bar
from zoo.generation.text import TextGenerator
from zoo.models.decoding import Sampling

BATCH = 16
"""Prompts that are continued together."""


def print_text(
    generator: TextGenerator, prompt: str, max_new_tokens: int, sampling: Sampling, seed: int
) -> None:
    """Print a prompt and the text after it, token by token. Notes go to stderr."""
    length = len(generator.prompt_tokens(prompt))
    trained, start, ended, last = generator.trained_length, time.perf_counter(), False, length - 1
    print(prompt, end="", flush=True)
    for piece in generator.stream(prompt, max_new_tokens, sampling, seed):
        if piece.position >= max(trained, length) > last:
            text = f"\n[beyond the trained length of {trained:,} tokens from here on]"
            print(text, file=sys.stderr, flush=True)
        last, ended = piece.position, piece.ended
        print(piece.text, end="", flush=True)
    print(flush=True)
    count = last + 1 - length
    speed = count / (time.perf_counter() - start)
    how = f"{count:,} tokens after a prompt of {length:,}; {_reason(ended, count, max_new_tokens)}"
    print(f"done: {how}; {speed:,.0f} tokens/s; seed {seed}", file=sys.stderr)


def print_batch(
    generator: TextGenerator, prompts: Sequence[str], max_new_tokens: int, sampling: Sampling, seed: int
) -> None:
    """Print the text after each of many prompts: a JSON object on each line with `prompt`, `text`, `tokens`
    and `ended`."""
    with progress_bar(len(prompts), "generating", "prompt") as bar:
        for first in range(0, len(prompts), BATCH):
            batch = prompts[first : first + BATCH]
            for one in generator.generate(batch, max_new_tokens, sampling, seed + first):
                print(json.dumps(vars(one), ensure_ascii=False), flush=True)
            bar.update(len(batch))


def _reason(ended: bool, count: int, most: int) -> str:
    if ended:
        return "the model closed the document"
    return "as many as asked for" if count == most else "the encoding ends here"
