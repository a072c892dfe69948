"""Measurements: the targets that a trained model was scored on, and its scores.

A measurement is one checkpoint, read by one protocol with its parameters, on one set of targets, at one or
more lengths. A run folder keeps each in a file of its own, `evaluation/measurements/PROTOCOL-DIGEST.json`;
tables, plots and `lengths.json` are made from all of them.

Nothing heavy is imported: `compare`, `sweep` and `list` read measurements too.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

TOO_FEW = "too few different examples to hold any out"
"""The reason why training may have seen the scored examples."""

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Number = int | float | None
"""None: not finite, or of nothing. JSON has no word for the infinities that failed extrapolation may give."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Targets(_Model):
    """The scored targets: `digest` is the same for the same targets at any length. `count` is the number of
    tokens, or of examples at each length. `text` is a digest of the text alone, for any tokenizer, where the
    targets are a text, and `max_tokens` the `evaluate.max_tokens` that chose them. `start_token` is the token
    before each window or prompt, if any: it is never a target, and decides the digest. `end_tokens` is how
    many of the targets are end tokens, which have a loss and no bytes; None where it was not recorded."""

    digest: str
    count: Count
    text: str | None = None
    start_token: str | None = None
    max_tokens: Count | None = None
    end_tokens: Count | None = None


class Units(_Model):
    """The scores of each document or block of a text, or of each example of a task: the units of a paired
    difference.

    Of documents and blocks: their indices, the nats and tokens that were scored in each and, of a likelihood,
    the bytes. Of examples: their scores.
    """

    documents: list[Count] | None = None
    blocks: list[Count] | None = None
    nats: list[Number] | None = None
    tokens: list[Count] | None = None
    bytes: list[Count] | None = None
    scores: list[Number] | None = None

    def columns(self) -> dict[str, list[Any]]:
        return self.model_dump(exclude_none=True)

    @classmethod
    def of_documents(
        cls,
        documents: Iterable[int],
        nats: Iterable[float],
        tokens: Iterable[float],
        sizes: Iterable[float] | None,
        kind: str = "documents",
    ) -> Units:
        """Units of documents, or with `kind="blocks"` of blocks; `sizes` are the bytes."""
        columns = {"nats": _numbers(nats), "tokens": _numbers(tokens)}
        columns |= {} if sizes is None else {"bytes": _numbers(sizes)}
        return cls(**{kind: [int(one) for one in documents]}, **columns)

    @classmethod
    def of_examples(cls, scores: Iterable[float]) -> Units:
        return cls(scores=_numbers(scores))


def _numbers(values: Iterable[float]) -> list[Number]:
    # Ten digits are more than a loss in float32 has; a whole number needs no point.
    rounded = (float(f"{float(value):.10g}") for value in values)
    return [
        None if not math.isfinite(value) else int(value) if value == int(value) else value
        for value in rounded
    ]


class Row(_Model):
    """The numbers of one length, or a `note` with the reason why there are none.

    The measures themselves (`loss_nats`, `accuracy`, ..., each with the ends of its 95 % interval, `M_low`
    and `M_high`) are the protocol's or the task's own: further keys, numbers all of them.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number] = Field(init=False)

    length: Positive
    """In tokens."""
    note: str | None = None
    remark: str | None = None
    """A caveat about the numbers."""
    documents: Count | None = None
    documents_left_out: Count | None = None
    examples: Count | None = None
    tokens: Count | None = None
    """Scored."""
    seen_in_training: float | None = None
    """The share of the scored examples that training may have seen, from 0 to 1; see `TOO_FEW`."""
    tokens_per_second: float | None = None
    peak_memory_mb: float | None = None
    machine: str | None = None
    """The machine of the speed."""
    units: Units | None = None
    blocks: Units | None = None
    """The units of the intervals where there are too few documents for them."""


UNITS = {"units", "blocks"}


class Measurement(_Model):
    """One measurement. `checkpoint` is relative to the run folder; `changed` has the options of the encoding
    that were changed after training; `step` is the number of optimizer steps of the checkpoint."""

    run: str
    encoding: str
    seed: int
    train_length: Positive
    checkpoint: str
    step: Count
    changed: dict[str, Any] = {}
    protocol: str
    parameters: dict[str, Any]
    """The protocol's own, the same at every length."""
    targets: Targets
    axis: str = "length"
    """The meaning of the rows' lengths: `length` of a sequence, `context` before a target, or
    `distance` to an earlier token."""
    higher_is_better: bool = False
    explanation: str = ""
    """One sentence about the protocol."""
    rows: list[Row]
    """By length, ascending; one for each."""

    @property
    def identity(self) -> str:
        """The same text for the same measurement, repeated or of further lengths."""
        parts = (self.checkpoint, self.changed, self.protocol, self.parameters, self.targets.digest)
        return json.dumps(parts, sort_keys=True)

    @property
    def file_name(self) -> str:
        digest = hashlib.sha256(self.identity.encode()).hexdigest()[:12]
        return f"{re.sub(r'[^A-Za-z0-9_-]', '_', self.protocol)}-{digest}.json"

    @property
    def change(self) -> str:
        """`changed` as JSON; the same text for the same changes."""
        return json.dumps(self.changed, sort_keys=True)

    @property
    def kind(self) -> tuple[str, str, str]:
        """Rows of measurements of one kind compare: they are of the same protocol, parameters and targets."""
        return self.protocol, json.dumps(self.parameters, sort_keys=True), self.targets.digest


def merged(measurements: Iterable[Measurement]) -> list[Measurement]:
    """One measurement of each identity, with the rows of all. Later rows replace earlier ones; a note
    replaces no measured row."""
    found: dict[str, Measurement] = {}
    for one in measurements:
        rows = {row.length: row for row in found[one.identity].rows} if one.identity in found else {}
        for row in one.rows:
            if row.note is None or rows.get(row.length, row).note is not None:
                rows[row.length] = row
        found[one.identity] = one.model_copy(update={"rows": [rows[length] for length in sorted(rows)]})
    return [*found.values()]


def flat_rows(measurements: Iterable[Measurement]) -> list[dict[str, Any]]:
    """A mapping for each row, as `lengths.json` has them: all that is known of it besides its units."""
    rows = []
    for one in measurements:
        about: dict[str, Any] = {"run": one.run, "encoding": one.encoding}
        about |= {"changed": one.changed} if one.changed else {}
        about |= {"checkpoint": one.checkpoint, "step": one.step, "seed": one.seed}
        about |= {"protocol": one.protocol, "parameters": one.parameters}
        last = {"targets": one.targets.digest, "train_length": one.train_length}
        rows += [about | row.model_dump(exclude_unset=True, exclude=UNITS) | last for row in one.rows]
    return rows
