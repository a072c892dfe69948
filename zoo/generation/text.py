"""Text after a prompt, from the model and the tokenizer of a run."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from zoo.data.text.tokenizer import TextTokenizer, open_tokenizer
from zoo.errors import InputError
from zoo.models.decoding import Sampling, decode
from zoo.models.transformer import Decoder
from zoo.runs.load import load_run, validate_device
from zoo.tasks.language_modelling import start_token
from zoo.tasks.task import Task


@dataclass(frozen=True)
class Piece:
    """The text of one token, empty where its character ends in the next.

    Attributes:
        position: of the token in the sequence, the prompt counted, from 0.
        ended: whether the token closed the document.
    """

    text: str
    position: int
    ended: bool


@dataclass(frozen=True)
class Generated:
    """A prompt and the generated text.

    Attributes:
        tokens: the number of generated tokens.
        ended: whether the model closed the document before `max_new_tokens` or the end of its encoding.
    """

    prompt: str
    text: str
    tokens: int
    ended: bool


class TextGenerator:
    """A trained language model with its tokenizer.

    Attributes:
        start_token: the token that each prompt begins with, or None.
        trained_length: tokens in a sequence in training.
        longest: the most tokens that its encoding takes, or None.
    """

    def __init__(self, task: Task, tokenizer: TextTokenizer):
        self.tokenizer = tokenizer
        self.start_token = start_token(task, tokenizer)
        self.model: Decoder = task.model
        self.trained_length: int = task.recipe.data.sequence_length
        self.longest: int | None = self.model.encoding.max_length

    def stream(
        self, prompt: str, max_new_tokens: int = 200, sampling: Sampling | None = None, seed: int = 0
    ) -> Iterator[Piece]:
        """Generate a token at a time, until the model closes the document, its encoding ends, or there are
        `max_new_tokens`.

        A prompt begins with the start token, if there is one, as windows of an evaluation do. An empty prompt
        without it stands for the beginning of a document.

        Args:
            sampling: by default at temperature 1 among all tokens.
            seed: of the draws.

        Raises:
            InputError: a prompt longer than the encoding takes.
        """
        tokens = self.prompt_tokens(prompt)
        # A character whose bytes are in several tokens comes with the last of them.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        position, ended = len(tokens) - 1, False
        for new in self._decode([tokens], max_new_tokens, sampling, seed):
            position, ended = position + 1, int(new) == self.tokenizer.end_token
            raw = b"" if ended else self._bytes_of([int(new)])
            yield Piece(decoder.decode(raw, final=ended), position, ended)
            if ended:
                return
        if rest := decoder.decode(b"", final=True):
            yield Piece(rest, position, ended)

    def generate(
        self,
        prompts: Sequence[str],
        max_new_tokens: int = 200,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> list[Generated]:
        """The same for several prompts at once, each to its own end. Greedily each has the text that it has
        alone, up to rounding. Arguments and errors as in `stream`."""
        rows: list[list[int]] = [[] for _ in prompts]
        end = self.tokenizer.end_token
        for new in self._decode([*map(self.prompt_tokens, prompts)], max_new_tokens, sampling, seed):
            for row, token in zip(rows, new.tolist(), strict=True):
                if row[-1:] != [end]:
                    row.append(token)
            if all(row[-1] == end for row in rows):
                break
        return [
            Generated(prompt, self.text_of(row), len(row), row[-1:] == [end])
            for prompt, row in zip(prompts, rows, strict=True)
        ]

    def prompt_tokens(self, prompt: str) -> list[int]:
        """The tokens of a prompt, at least one."""
        if self.start_token is not None:
            start = self.start_token
            return [start.id, *self.tokenizer.encode_short(prompt.removeprefix(start.text))]
        tokens = self.tokenizer.encode_short(prompt)
        if not tokens and self.tokenizer.end_token is None:
            raise InputError("the tokenizer has no token to begin an empty prompt with; give a prompt")
        return tokens or [self.tokenizer.end_token]

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens; special ones have none, a character cut at the end becomes U+FFFD."""
        return self._bytes_of(tokens).decode(errors="replace")

    def _bytes_of(self, tokens: Iterable[int]) -> bytes:
        # A published model may have more rows than its tokenizer has tokens.
        known = self.tokenizer.token_bytes()
        return b"".join(known[token] for token in tokens if token < len(known))

    def _decode(
        self, prompts: list[list[int]], max_new_tokens: int, sampling: Sampling | None, seed: int
    ) -> Iterator[torch.Tensor]:
        longest = max(map(len, prompts))
        if self.longest is not None:
            if longest > self.longest:
                number = next(i for i, tokens in enumerate(prompts, 1) if len(tokens) > self.longest)
                count = len(prompts[number - 1])
                raise InputError(
                    f"prompt {number} has {count} tokens, but the encoding ends at {self.longest}"
                )
            # The last generated token is not read.
            max_new_tokens = min(max_new_tokens, self.longest - longest + 1)
        device, fill = self.model.tokens.weight.device, self.tokenizer.end_token or 0
        tokens = torch.tensor([[fill] * (longest - len(one)) + one for one in prompts], device=device)
        padding = torch.tensor([longest - len(one) for one in prompts], device=device)
        keep = torch.arange(longest, device=device) >= padding[:, None] if padding.any() else None
        generator = torch.Generator(device).manual_seed(seed)
        yield from decode(self.model, tokens, max_new_tokens, keep, sampling or Sampling(), generator)


def open_generator(
    path: str | Path,
    device: str = "cpu",
    plugins: Sequence[str | Path] = (),
    sets: Sequence[str] = (),
) -> TextGenerator:
    """The language model of a run folder, a checkpoint in one, or an exported folder.

    Args:
        device, plugins, sets: as in `zoo.load`.

    Raises:
        InputError: nothing usable there, not a decoder of text, or not the tokenizer of its training.
    """
    validate_device(device)
    run = load_run(Path(path), sets, plugins)
    task, file = run.task, run.tokenizer
    if not isinstance(task.model, Decoder):
        raise InputError(f"{path}: an encoder, which reads all tokens at once; only a decoder generates text")
    if not file.is_file():
        raise InputError(f"{file.parent}: no {file.name} in it; its data is {task.recipe.data.name}")
    tokenizer = open_tokenizer(str(file))
    if task.card.get("fingerprint", {}).get("tokenizer") not in (None, tokenizer.fingerprint):
        raise InputError(f"{file}: not the tokenizer that this model was trained with")
    task.model.to(device)
    return TextGenerator(task, tokenizer)
