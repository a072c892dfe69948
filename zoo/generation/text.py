"""Text after a prompt, from the model and the tokenizer of a run."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from zoo.data.text.tokenizer import TextTokenizer, open_tokenizer
from zoo.errors import InputError, Problem
from zoo.models.decoding import Sampling, decode
from zoo.models.transformer import Decoder
from zoo.runs.load import find_checkpoint, load_task, run_folder_of, validate_device
from zoo.tasks.language_modelling import start_token
from zoo.tasks.task import Task

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Piece:
    """What one token adds to a text: nothing, where a character goes on in the next.

    Attributes:
        position: of the token in the sequence, the prompt counted, from 0.
        ended: whether the token closed the document.
    """

    text: str
    position: int
    ended: bool


@dataclass(frozen=True)
class Generated:
    """A prompt, and the text that a model wrote after it.

    Attributes:
        tokens: how many were written.
        ended: whether the model closed the document; else it stopped at the number that was asked for, or
            where its encoding ends.
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
        longest: tokens that its encoding takes; None where it has no end.
    """

    def __init__(self, task: Task, tokenizer: TextTokenizer):
        self.tokenizer = tokenizer
        self.start_token = start_token(task, tokenizer)
        self.model: Decoder = task.model
        self.trained_length: int = task.recipe.data.sequence_length
        self.longest: int | None = self.model.encoding.max_length

    def stream(
        self,
        prompt: str,
        max_new_tokens: int = 200,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> Iterator[Piece]:
        """What the model writes, a token at a time, until it closes the document or `max_new_tokens`; less
        where its encoding ends.

        A prompt begins with the start token, if there is one, as windows of an evaluation do. An empty prompt
        without it stands for the beginning of a document.

        Args:
            sampling: by default at temperature 1 among all tokens.
            seed: of the draws.

        Raises:
            InputError: a prompt longer than the encoding takes.
        """
        tokens = self.prompt_tokens(prompt)
        text = _Text(self.tokenizer)
        position, ended = len(tokens) - 1, False
        for new in self._decode([tokens], max_new_tokens, sampling, seed):
            position, ended = position + 1, int(new) == self.tokenizer.end_token
            yield Piece(text.rest() if ended else text.add(int(new)), position, ended)
            if ended:
                return
        if rest := text.rest():
            yield Piece(rest, position, ended)

    def generate(
        self,
        prompts: Sequence[str],
        max_new_tokens: int = 200,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> list[Generated]:
        """The same for several prompts at once, each to its own end. Arguments as in `stream`; greedily each
        has the text that it has alone, up to rounding.

        Raises:
            InputError: prompts longer than the encoding takes.
        """
        tokens = [self.prompt_tokens(prompt) for prompt in prompts]
        written: list[list[int]] = [[] for _ in prompts]
        end = self.tokenizer.end_token
        for new in self._decode(tokens, max_new_tokens, sampling, seed):
            for row, token in zip(written, new.tolist(), strict=True):
                if not row or row[-1] != end:
                    row.append(token)
            if all(row[-1] == end for row in written):
                break
        return [
            Generated(prompt, self.text_of(row), len(row), bool(row) and row[-1] == end)
            for prompt, row in zip(prompts, written, strict=True)
        ]

    def prompt_tokens(self, prompt: str) -> list[int]:
        """The tokens of a prompt, at least one."""
        if self.start_token is None:
            tokens = self.tokenizer.encode_short(prompt) or [self.tokenizer.end_token]
            if tokens == [None]:
                raise InputError("the tokenizer has no token to begin an empty prompt with; give a prompt")
            return tokens
        start = self.tokenizer.tokenizer.token_to_id(self.start_token)
        return [start, *self.tokenizer.encode_short(prompt.removeprefix(self.start_token))]

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens; special ones have none, a character cut at the end becomes U+FFFD."""
        decoder = _Text(self.tokenizer)
        return "".join(decoder.add(token) for token in tokens) + decoder.rest()

    def _decode(
        self, prompts: list[list[int]], max_new_tokens: int, sampling: Sampling | None, seed: int
    ) -> Iterator[torch.Tensor]:
        longest = max(map(len, prompts))
        room = max_new_tokens
        if self.longest is not None:
            over = [index for index, tokens in enumerate(prompts) if len(tokens) > self.longest]
            if over:
                raise InputError(
                    [
                        Problem(f"prompt {index + 1} has {len(prompts[index])} tokens, but the encoding ends "
                        f"at {self.longest}")
                        for index in over
                    ]
                )  # fmt: skip
            # The last token that is written is not read.
            room = min(room, self.longest - longest + 1)
        device = self.model.tokens.weight.device
        tokens = torch.tensor(
            [[self.tokenizer.end_token or 0] * (longest - len(one)) + one for one in prompts], device=device
        )
        padding = torch.tensor([longest - len(one) for one in prompts], device=device)
        keep = torch.arange(longest, device=device) >= padding[:, None]
        generator = torch.Generator(device).manual_seed(seed)
        yield from decode(
            self.model, tokens, room, None if bool(keep.all()) else keep, sampling or Sampling(), generator
        )


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
        InputError: nothing usable there, no model that writes text, or no tokenizer that it was trained with.
    """
    validate_device(device)
    checkpoint = find_checkpoint(Path(path))
    folder = run_folder_of(checkpoint) or checkpoint.parent
    task = load_task(Path(path), sets, plugins)
    if not isinstance(task.model, Decoder):
        raise InputError(f"{path}: an encoder, which reads all tokens at once; text is written by a decoder")
    if not (folder / TOKENIZER).is_file():
        about = f"its data, {task.recipe.data.name}, is no text" if (folder / "card.json").is_file() else ""
        raise InputError(f"{folder}: no {TOKENIZER} in it{f': {about}' if about else ''}")
    tokenizer = open_tokenizer(str(folder / TOKENIZER))
    trained_with = task.card.get("fingerprint", {}).get("tokenizer")
    if trained_with not in (None, tokenizer.fingerprint):
        raise InputError(f"{folder / TOKENIZER}: not the tokenizer that this model was trained with")
    task.model.to(device)
    return TextGenerator(task, tokenizer)


class _Text:
    """Text from tokens: a character whose bytes are in several tokens comes with the last of them."""

    def __init__(self, tokenizer: TextTokenizer):
        self._bytes_of = tokenizer.token_bytes()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        # A published model may have more rows than its tokenizer has tokens.
        return self._decoder.decode(self._bytes_of[token] if token < len(self._bytes_of) else b"")

    def rest(self) -> str:
        return self._decoder.decode(b"", final=True)
