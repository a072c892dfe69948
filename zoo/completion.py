"""The script by which a shell completes the command line: verbs, options, recipe files and folders."""

from __future__ import annotations

import argparse

import shtab

from zoo.arguments import LISTS

RECIPES = shtab.glob("*.yaml", "*.yml")
BY_METAVAR = {"RECIPE": RECIPES, "RUN": shtab.DIRECTORY, "DIR": shtab.DIRECTORY, "PATH": shtab.FILE}
"""What is completed where an argument is a path; a checkpoint is a file, and a run a folder."""


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for `bash`, `zsh` or `fish`, from the parser of the command line (`shtab`)."""
    for verb in _verbs(parser):
        for action in verb._actions:
            metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar
            if action.dest == "what" and metavar == "|".join(LISTS):
                action.choices = LISTS
            elif action.dest == "resume":
                action.choices = ("auto",)
            elif action.dest == "diff":
                action.complete = shtab.DIRECTORY
            elif action.dest == "what":
                action.complete = shtab.FILE
            elif metavar in BY_METAVAR:
                action.complete = BY_METAVAR[metavar]
    return shtab.complete(parser, shell)


def _verbs(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parsers of the verbs."""
    (verbs,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return list(verbs.choices.values())
