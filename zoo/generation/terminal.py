"""Generated text on a terminal, in a pipe, and in a file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from zoo.console import progress_bar
from zoo.files import atomic_write
from zoo.generation.text import Generated, TextGenerator
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
    generator: TextGenerator,
    prompts: Sequence[str],
    out: Path | None,
    max_new_tokens: int,
    sampling: Sampling,
    seed: int,
) -> None:
    """Print the text after each of many prompts, or write it to a file, a JSON object on each line with
    `prompt`, `text`, `tokens` and `ended`."""
    texts: list[Generated] = []
    with progress_bar(len(prompts), "generating", "prompt") as bar:
        for first in range(0, len(prompts), BATCH):
            texts += generator.generate(
                prompts[first : first + BATCH], max_new_tokens, sampling, seed + first
            )
            bar.update(len(texts) - first)
    if out is not None:
        atomic_write(out, "".join(f"{json.dumps(vars(one), ensure_ascii=False)}\n" for one in texts))
        print(f"done: {out} has {len(texts):,} texts")
        return
    for number, one in enumerate(texts, 1):
        reason = _reason(one.ended, one.tokens, max_new_tokens)
        print(f"--- prompt {number}, {one.tokens:,} tokens; {reason}\n{one.prompt}{one.text}")
    print(f"done: {len(texts):,} texts; seed {seed}", file=sys.stderr)


def _reason(ended: bool, count: int, most: int) -> str:
    if ended:
        return "the model closed the document"
    return "as many as asked for" if count == most else "the encoding ends here"
