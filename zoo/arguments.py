"""What the command line takes: verbs, their options, the help on them, and how a shell completes them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

LISTS = ("encodings", "datasets", "tasks", "protocols", "optimizers", "schedules", "recipes", "runs")
SHELLS = ("bash", "zsh", "fish")


def _whole_numbers(text: str, least: int = 0) -> list[int]:
    numbers = [int(part) for part in text.split(",") if part.isdecimal()]
    if len(numbers) != text.count(",") + 1 or min(numbers) < least:
        raise argparse.ArgumentTypeError(f"whole numbers from {least} on, as in 1,2,3; got {text!r}")
    return numbers


def _lengths(text: str) -> list[int]:
    return _whole_numbers(text, least=1)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number above 0 is needed; got {text!r}")
    return int(text)


def _words(text: str) -> list[str]:
    words = [word for word in text.split(",") if word]
    if not words:
        raise argparse.ArgumentTypeError(f"names are separated by commas, as in a,b; got {text!r}")
    return words


def make_parser(run: Mapping[str, Callable[[argparse.Namespace], None]]) -> argparse.ArgumentParser:
    """The parser of the command line. `run` has what does each verb; it becomes `verb` in what is parsed."""
    parser = argparse.ArgumentParser(
        prog="zoo",
        description="A zoo of positional encodings: train transformers that differ in nothing else, and see "
        "how each behaves on sequences longer than it was trained on.",
        epilog="`zoo VERB --help` has the options and examples. `python -m zoo` is the same command.",
        allow_abbrev=False,
    )
    parser.set_defaults(verb=lambda options: _print_version() if options.version else parser.print_help())
    parser.add_argument("--version", action="store_true", help="print the version of the zoo, and leave")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")

    fit = _verb(
        verbs,
        "fit",
        run["fit"],
        "Train the model of a recipe.",
        """
        zoo fit recipes/alibi_maxindex.yaml
        zoo fit recipes/alibi_wikitext2.yaml --set data.root=data --set trainer.max_steps=200
        zoo fit recipes/alibi_wikitext2.yaml --set model.encoding.slopes=geometric
        zoo fit recipes/alibi_wikitext2.yaml --out runs/mine --resume
        """,
    )
    fit.add_argument("file", type=Path, nargs="?", metavar="RECIPE", help="the recipe, a YAML file")
    fit.add_argument("--recipe", type=Path, metavar="RECIPE", help="the same")
    _add_set(fit, "change a key of the recipe")
    fit.add_argument(
        "--out", type=Path, metavar="DIR", help="the run folder (default: runs/, named by the recipe)"
    )
    fit.add_argument(
        "--resume",
        nargs="?",
        const=True,
        default=False,
        metavar="auto",
        help="go on from the run folder's last checkpoint; `--resume auto`: if there is a run, else begin "
        "one (for a job script that is run again from its top)",
    )

    evaluate = _verb(
        verbs,
        "evaluate",
        run["evaluate"],
        "Score trained models at several sequence lengths.",
        """
        zoo evaluate runs/alibi_maxindex
        zoo evaluate runs/alibi_wikitext2 runs/rope_wikitext2 --lengths 256,512,1024 --devices 2
        zoo evaluate runs/rope_wikitext2 --protocol nonoverlapping,sliding --set evaluate.stride=64
        zoo evaluate runs/rope_wikitext2 --set model.encoding.scaling=yarn --set model.encoding.factor=4
        """,
    )
    evaluate.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="run folders or checkpoints")
    evaluate.add_argument(
        "--lengths", type=_lengths, metavar="N,N", help="lengths in tokens (default: the recipe's)"
    )
    evaluate.add_argument(
        "--protocol", type=_words, metavar="NAME,NAME", help="protocols (default: the recipe's)"
    )
    evaluate.add_argument(
        "--devices", type=_count, default=1, metavar="N", help="GPUs or processes to share it (default: 1)"
    )
    _add_set(evaluate, "change a key of the run's recipe: where its data lies, or what of its encoding may")

    compare = _verb(
        verbs,
        "compare",
        run["compare"],
        "Put evaluated runs beside each other: tables, plots and a page to look at.",
        """
        zoo compare runs/alibi_wikitext2 runs/rope_wikitext2
        zoo compare runs/*_wikitext2 --protocol nonoverlapping,sliding --lengths 256,512,1024
        zoo compare runs/*_wikitext2 --reference rope --out comparisons/wikitext2
        zoo compare --diff runs/alibi_wikitext2 runs/rope_wikitext2
        """,
    )
    compare.add_argument("paths", type=Path, nargs="*", metavar="RUN", help="run folders")
    compare.add_argument(
        "--protocol", type=_words, metavar="NAME,NAME", help="protocols (default: all that were measured)"
    )
    compare.add_argument(
        "--lengths", type=_lengths, metavar="N,N", help="lengths in tokens (default: all that were measured)"
    )
    compare.add_argument(
        "--reference", metavar="NAME", help="show differences to this encoding (default: the best as trained)"
    )
    compare.add_argument("--out", type=Path, metavar="DIR", help="where it is written (default: comparison/)")
    compare.add_argument(
        "--force", action="store_true", help="compare what is not comparable, and mark it on every output"
    )
    compare.add_argument(
        "--diff", type=Path, nargs=2, metavar=("A", "B"), help="print only what differs between two runs"
    )

    sweep = _verb(
        verbs,
        "sweep",
        run["sweep"],
        "Train one recipe with several encodings and seeds, and compare them.",
        """
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope,none --seeds 0,1,2
        zoo sweep recipes/base/wikitext2.yaml --encodings 'rope,{name: rope, partial: 0.25},[rope, fox]'
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope --set trainer.max_steps=200 --out runs/short
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope --seeds 0,1,2 --print-commands | parallel -j 4
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope --slurm='--partition=gpu --time=8:00:00'
        """,
    )
    sweep.add_argument(
        "recipe", type=Path, metavar="RECIPE", help="a recipe file, with or without an encoding"
    )
    sweep.add_argument(
        "--encodings",
        required=True,
        metavar="A,B",
        help="as a recipe has them, separated by commas",
    )
    sweep.add_argument("--seeds", type=_whole_numbers, default=[0], metavar="N,N", help="seeds (default: 0)")
    _add_set(sweep, "change a key of the recipe, for all runs")
    sweep.add_argument(
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="folder of the run folders (default: runs)",
    )
    sweep.add_argument(
        "--jobs",
        type=_count,
        metavar="N",
        help="runs at the same time (default: one for each visible GPU; on a CPU one; SLURM decides itself)",
    )
    how = sweep.add_mutually_exclusive_group()
    how.add_argument(
        "--slurm",
        nargs="?",
        const="",
        metavar="OPTIONS",
        help="submit the runs as a SLURM array and the comparison as a job after it, with these options of "
        "sbatch",
    )
    how.add_argument(
        "--compare-only", action="store_true", help="train nothing: compare the runs that are finished"
    )
    how.add_argument(
        "--print-commands",
        action="store_true",
        help="print the commands of unfinished runs, and run nothing",
    )

    lists = _verb(
        verbs,
        "list",
        run["list"],
        "List what there is: encodings, datasets, tasks, protocols, optimizers, schedules, recipes or runs.",
        """
        zoo list encodings
        zoo list 'rope*'
        zoo list recipes '*wikitext2*'
        zoo list runs
        """,
    )
    lists.add_argument(
        "what", nargs="?", default="encodings", metavar="|".join(LISTS), help="default: encodings"
    )
    lists.add_argument("pattern", nargs="?", metavar="PATTERN", help="names to list; * and ? as in a shell")

    show = _verb(
        verbs,
        "show",
        run["show"],
        "Print a recipe with every key resolved, or the schema of recipes.",
        """
        zoo show recipes/alibi_wikitext2.yaml
        zoo show recipes/alibi_wikitext2.yaml --set model.encoding=rope > rope.yaml
        zoo show --schema > recipe.schema.json
        """,
    )
    show.add_argument("recipe", type=Path, nargs="?", metavar="RECIPE", help="a recipe file")
    _add_set(show, "change a key of the recipe")
    show.add_argument("--schema", action="store_true", help="print the JSON Schema of a recipe, for editors")

    check = _verb(
        verbs,
        "check",
        run["check"],
        "Try on an encoding the laws that encodings keep, and print what holds or what is to be mended.",
        """
        zoo check my_encoding.py
        zoo check my_encoding.py --all --verbose
        zoo check rope --set base=500000 --set layout=interleaved
        zoo check '[alibi, {name: shaw, values: false}]'
        """,
    )
    named = "an encoding's name, a Python file that registers some, or one as a recipe has it"
    check.add_argument("what", metavar="NAME|FILE|ENCODING", help=named)
    _add_set(check, "give an option; only the encoding with the options given is tried then")
    check.add_argument(
        "--all", action="store_true", help="the slow laws too: torch.compile, and training in two processes"
    )
    check.add_argument(
        "--verbose", action="store_true", help="every law and fault too, and what the encoding printed"
    )

    completion = _verb(
        verbs,
        "completion",
        run["completion"],
        "Print the script by which a shell completes this command.",
        """
        zoo completion bash > ~/.local/share/bash-completion/completions/zoo
        zoo completion zsh > ~/.zfunc/_zoo    # a folder of $fpath
        zoo completion fish > ~/.config/fish/completions/zoo.fish
        """,
    )
    completion.add_argument("shell", choices=SHELLS, help="which shell")
    return parser


def _print_version() -> None:
    from importlib.metadata import version  # slow, and seldom needed

    print(f"zoo {version('positional-encoding-zoo')}")


def _verb(verbs, name: str, run, summary: str, examples: str) -> argparse.ArgumentParser:
    lines = [line.strip() for line in examples.strip().splitlines()]
    verb = verbs.add_parser(
        name,
        help=summary,
        description=summary,
        epilog="examples:\n" + "\n".join(f"  {line}" for line in lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verb.set_defaults(verb=run)
    return verb


def _add_set(verb: argparse.ArgumentParser, about: str) -> None:
    verb.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help=f"{about}; may be given several times"
    )


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
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
