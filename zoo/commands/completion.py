"""The verb `completion`."""

from __future__ import annotations

import argparse

from zoo.commands.list_things import LISTS

SHELLS = ("bash", "zsh", "fish")
SUMMARY = "Print the script by which a shell completes this command."
EXAMPLES = """
zoo completion bash > ~/.local/share/bash-completion/completions/zoo
zoo completion zsh > ~/.zfunc/_zoo    # a folder of $fpath
zoo completion fish > ~/.config/fish/completions/zoo.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(options: argparse.Namespace) -> None:
    print(_script(options.parser, options.shell))


def _script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script by which bash, zsh or fish completes verbs, options, recipe files and folders."""
    import shtab

    # A checkpoint is a file, and a run a folder.
    by_metavar = {"RECIPE": shtab.glob("*.yaml", "*.yml"), "RUN": shtab.DIRECTORY, "DIR": shtab.DIRECTORY}
    by_metavar |= {("A", "B"): shtab.DIRECTORY, "PATH": shtab.FILE, "NAME|FILE|ENCODING": shtab.FILE}
    choices = {"|".join(LISTS): LISTS, "auto": ("auto",)}
    (verbs,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    for verb in verbs.choices.values():
        for action in verb._actions:
            if action.metavar in choices:
                action.choices = choices[action.metavar]
            elif action.metavar in by_metavar:
                action.complete = by_metavar[action.metavar]
    return shtab.complete(parser, shell)
