"""What the options and runs of several verbs share."""

from __future__ import annotations

import argparse


def add_set(verb: argparse.ArgumentParser, about: str) -> None:
    """Add `--set KEY=VALUE` with its help."""
    verb.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help=f"{about}; may be given several times"
    )
