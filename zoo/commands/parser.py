"""All verbs, and the parser of the command line."""

from __future__ import annotations

import argparse
from types import ModuleType

from zoo.commands import (
    check,
    compare,
    draw,
    evaluate,
    export,
    fit,
    generate,
    import_model,
    list_things,
    prepare,
    show,
    sweep,
)

VERBS: dict[str, ModuleType] = {
    "fit": fit,
    "prepare": prepare,
    "evaluate": evaluate,
    "compare": compare,
    "sweep": sweep,
    "generate": generate,
    "import": import_model,
    "export": export,
    "list": list_things,
    "show": show,
    "check": check,
    "draw": draw,
}
"""In the order of the help. Each has SUMMARY, EXAMPLES, add_arguments(parser) and run(options)."""


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line; the parsed options have the verb's function as `run`."""
    parser = argparse.ArgumentParser(
        prog="zoo",
        description="A zoo of positional encodings: train transformers that differ in nothing else, and see "
        "how each behaves on sequences longer than it was trained on.",
        epilog="`zoo VERB --help` has the options and examples. `python -m zoo` is the same command.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_without_verb, parser=parser, verb_parser=parser)
    parser.add_argument("--version", action="store_true", help="print the version of the zoo, and leave")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    for name, verb in VERBS.items():
        one = verbs.add_parser(
            name,
            help=verb.SUMMARY,
            description=verb.SUMMARY,
            epilog="examples:" + verb.EXAMPLES.rstrip().replace("\n", "\n  "),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        verb.add_arguments(one)
        one.set_defaults(run=verb.run, verb_parser=one)
    return parser


def _without_verb(options: argparse.Namespace) -> None:
    if not options.version:
        options.parser.print_help()
        return
    from importlib.metadata import version  # slow, and seldom needed

    print(f"zoo {version('positional-encoding-zoo')}")
