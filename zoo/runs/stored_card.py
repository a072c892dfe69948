"""Reading the card of a run; nothing heavy is imported for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from zoo.errors import InputError, Problem
from zoo.files import read_json
from zoo.runs.folder import CARD

MAX_BYTES = 1 << 20
ADVICE = "; restore it, or move the run away"
NEEDED = {"task": str, "fingerprint": dict, "steps": int, "tokens_seen": int, "parameters": dict}
MAY_BE = {
    "encoding": str, "encoding_source": list, "versions": dict, "init_from": dict, "git_commit": str,
    "finished": bool, "name": str, "data": str, "train_length": int, "seed": int, "device": str,
    "changed_on_resume": list,
}  # fmt: skip
"""What the values of a card are; those of MAY_BE need not be there."""


def stored_card(folder: Path) -> dict[str, Any]:
    """The card in a run folder, whole and with every value of its kind.

    Raises:
        InputError: it is missing or cannot be read, or is no card; all that is wrong with it is told.
    """
    file = folder / CARD
    card = read_card(file)
    lacking = [f"no {key}" for key in NEEDED if card.get(key) is None]
    kinds = [(key, kind, card.get(key)) for key, kind in (NEEDED | MAY_BE).items()]
    if isinstance(card.get("parameters"), dict):
        kinds += [(f"parameters.{name}", int, count) for name, count in card["parameters"].items()]
    wrong = [
        f"{key} is no {kind.__name__}"
        for key, kind, value in kinds
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is int))
    ]
    if lacking or wrong:
        cause = ", ".join([*lacking, *wrong])
        raise InputError(
            Problem(f"not the card of a run, or an earlier version's ({cause}){ADVICE}", where=str(file))
        )
    return card


def read_card(file: Path, advice: str = ADVICE) -> dict[str, Any]:
    """What a card holds, whatever that is; `advice` is what to do about one that is none.

    Raises:
        InputError: it is missing, cannot be read, or is no JSON object.
    """
    if not os.path.lexists(file):
        raise InputError(Problem("the run's card is missing", where=str(file)))
    card = read_json(file, MAX_BYTES, advice)
    if not isinstance(card, dict):
        raise InputError(Problem(f"not the card of a run{advice}", where=str(file)))
    return card
