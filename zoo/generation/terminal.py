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


def print_text(
    generator: TextGenerator, prompt: str, max_new_tokens: int, sampling: Sampling, seed: int
) -> None:
    """Print a prompt and what is written after it, as it comes. Notes go to stderr: a pipe has the text."""
    length = len(generator.prompt_tokens(prompt))
    trained, start, ended, last = generator.trained_length, time.perf_counter(), False, length - 1
    print(prompt, end="", flush=True)
    if length > trained:
        _note(f"the prompt has {length:,} tokens, more than the {trained:,} of the trained length")
    for piece in generator.stream(prompt, max_new_tokens, sampling, seed):
        if piece.position == trained and last < trained:
            _note(f"beyond the trained length of {trained:,} tokens from here on")
        last, ended = piece.position, piece.ended
        print(piece.text, end="", flush=True)
    print(flush=True)
    written, seconds = last + 1 - length, time.perf_counter() - start
    why = _why_ended(generator, ended, written, max_new_tokens)
    how = f"{written:,} tokens after a prompt of {length:,}; {why}; {written / seconds:,.0f} tokens/s"
    print(f"done: {how}; seed {seed}", file=sys.stderr)


def print_batch(
    generator: TextGenerator,
    prompts: Sequence[str],
    out: Path | None,
    max_new_tokens: int,
    sampling: Sampling,
    seed: int,
    batch_size: int = 16,
) -> None:
    """Print what is written after each of many prompts, or write it to a file, a JSON object on each line
    with `prompt`, `text`, `tokens` and `ended`."""
    written: list[Generated] = []
    with progress_bar(len(prompts), "generating", "prompt") as bar:
        for first in range(0, len(prompts), batch_size):
            batch = prompts[first : first + batch_size]
            written += generator.generate(batch, max_new_tokens, sampling, seed + first)
            bar.update(len(batch))
    if out is not None:
        lines = (json.dumps(one.__dict__, ensure_ascii=False) for one in written)
        atomic_write(out, "".join(f"{line}\n" for line in lines))
        print(f"done: {out} has {len(written):,} texts")
        return
    for number, one in enumerate(written, 1):
        why = _why_ended(generator, one.ended, one.tokens, max_new_tokens)
        print(f"--- prompt {number}, {one.tokens:,} tokens; {why}\n{one.prompt}{one.text}")
    print(f"done: {len(written):,} texts; seed {seed}", file=sys.stderr)


def _why_ended(generator: TextGenerator, ended: bool, written: int, asked: int) -> str:
    if ended:
        return "the model closed the document"
    return "as many as asked for" if written == asked else f"its encoding ends at {generator.longest:,}"


def _note(text: str) -> None:
    print(f"\n[{text}]", file=sys.stderr, flush=True)
