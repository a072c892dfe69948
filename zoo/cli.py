"""The command line: verbs, and nothing else. What a verb needs is imported when the verb is called."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from zoo.errors import InputError, Problem, RunError

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130

LISTS = ("encodings", "recipes", "datasets", "tasks", "runs")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 the run failed, 2 wrong input, 130 interrupted.

    An exception that nobody foresaw keeps its traceback.
    """
    options = _parser().parse_args(arguments)
    try:
        options.verb(options)
        sys.stdout.flush()
    except InputError as error:
        print(error, file=sys.stderr)
        return WRONG_INPUT
    except RunError as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except SystemExit as error:
        # Lightning turns Ctrl-C into an exit of its own; one with our code is of a process that keeps silent.
        if isinstance(error.__context__, KeyboardInterrupt) and error.code != INTERRUPTED:
            return _interrupted(error.__context__)
        if not error.code:
            # Code that is not ours has left, and nothing of what was asked for need have been done.
            print("stopped before its end: something called exit()", file=sys.stderr)
            return FAILED
        raise
    except BrokenPipeError:
        # The reader of our output has left (`| head`); Python would complain once more while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        from zoo.files import full_disk_message, is_disk_full

        if not is_disk_full(error):
            raise
        print(f"{full_disk_message(error)}; make room and try again", file=sys.stderr)
        return FAILED
    return DONE


def _interrupted(error: KeyboardInterrupt) -> int:
    # Of processes started together the first tells it.
    if str(error) or not any(int(os.environ.get(rank) or 0) for rank in ("LOCAL_RANK", "SLURM_PROCID")):
        print(str(error) or "interrupted", file=sys.stderr)
    return INTERRUPTED


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM is Ctrl-C: a job that is ended while it still imports says so."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets no other thread have handlers
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fit(options: argparse.Namespace) -> None:
    with _sigterm_as_interrupt():
        _fit_recipe(options)


def _fit_recipe(options: argparse.Namespace) -> None:
    from zoo.recipe import read_recipe

    recipe = read_recipe(options.recipe, options.set)
    from zoo.training.fit import fit

    try:
        fit(recipe, out=options.out, resume=options.resume)
    except InputError as error:
        raise InputError([_placed(problem, options) for problem in error.problems]) from error


def _placed(problem: Problem, options: argparse.Namespace) -> Problem:
    """A problem that showed only once the run began, with the place where its key was said."""
    if problem.key is None or problem.where is not None:
        return problem
    from zoo.recipe import locate

    return replace(problem, where=locate(options.recipe, options.set, problem.key))


def _evaluate(options: argparse.Namespace) -> None:
    missing = [str(path) for path in options.paths if not path.exists()]
    # Of processes started together the first tells it, once they have met.
    if missing and "LOCAL_RANK" not in os.environ:
        raise InputError("\n".join(f"{path}: no such run folder or checkpoint" for path in missing))
    from zoo.evaluation.evaluate import evaluate

    evaluate(options.paths, options.lengths, options.protocol, options.set, options.devices)


def _sweep(options: argparse.Namespace) -> None:
    from zoo.sweep.matrix import read_encodings
    from zoo.sweep.sweep import sweep

    encodings = read_encodings(options.encodings)
    sweep(
        options.recipe,
        encodings,
        options.seeds,
        options.set,
        options.out,
        options.jobs,
        options.print_commands,
    )


def _compare(options: argparse.Namespace) -> None:
    if options.diff:
        from zoo.comparison.diff import diff

        if options.paths:
            raise InputError("--diff takes two runs and no more: zoo compare --diff runs/a runs/b")
        print(diff(*options.diff))
        return
    if not options.paths:
        raise InputError("compare which runs? zoo compare runs/a runs/b, or --diff runs/a runs/b")
    from zoo.comparison.compare import OUT, compare

    compare(options.paths, options.out or OUT, options.protocol, options.lengths, options.force)


def _list(options: argparse.Namespace) -> None:
    from zoo.listing import listing

    what, pattern = options.what, options.pattern
    if what not in LISTS:
        if pattern is not None:
            _wrong_list(what)
        try:
            print(listing("encodings", what))
        except InputError as error:
            raise InputError(f"{error} (lists: {', '.join(LISTS)})") from error
        return
    print(listing(what, pattern))


def _wrong_list(what: str) -> None:
    from difflib import get_close_matches

    near = get_close_matches(what, LISTS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(LISTS)}"
    raise InputError(f"no list {what!r}; {hint}")


def _show(options: argparse.Namespace) -> None:
    if options.schema:
        import json

        from zoo.recipe import json_schema

        print(json.dumps(json_schema(), indent=2))
        return
    if options.recipe is None:
        raise InputError("show what? A recipe file (show recipes/alibi_wikitext2.yaml), or --schema")
    from zoo.recipe import dump, read_recipe

    recipe = read_recipe(options.recipe, options.set)
    sets = "".join(f" --set {text}" for text in options.set)
    print(f"# {options.recipe}{sets}, resolved\n{dump(recipe)}", end="")


def _check(options: argparse.Namespace) -> None:
    from zoo.contract.check import check

    check(options.what, options.set)


def _lengths(text: str) -> list[int]:
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 1:
        raise argparse.ArgumentTypeError(f"lengths are whole numbers above 0, as in 64,128,256; got {text!r}")
    return lengths


def _seeds(text: str) -> list[int]:
    seeds = [int(part) for part in text.split(",") if part.isdecimal()]
    if len(seeds) != text.count(",") + 1:
        raise argparse.ArgumentTypeError(f"seeds are whole numbers, as in 0,1,2; got {text!r}")
    return seeds


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number above 0 is needed; got {text!r}")
    return int(text)


def _words(text: str) -> list[str]:
    words = [word for word in text.split(",") if word]
    if not words:
        raise argparse.ArgumentTypeError(f"names are separated by commas, as in a,b; got {text!r}")
    return words


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zoo",
        description="A zoo of positional encodings: train transformers that differ in nothing else, and see "
        "how each behaves on sequences longer than it was trained on.",
        epilog="`zoo VERB --help` has the options and examples. `python -m zoo` is the same command.",
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    fit = _verb(
        verbs,
        "fit",
        _fit,
        "Train the model of a recipe.",
        """
        zoo fit --recipe recipes/alibi_maxindex.yaml
        zoo fit --recipe recipes/alibi_wikitext2.yaml --set data.root=data --set trainer.max_steps=200
        zoo fit --recipe recipes/alibi_wikitext2.yaml --set model.encoding.slopes=geometric
        zoo fit --recipe recipes/alibi_wikitext2.yaml --out runs/mine --resume
        """,
    )
    fit.add_argument("--recipe", type=Path, required=True, metavar="FILE", help="the recipe, a YAML file")
    _add_set(fit, "change a key of the recipe")
    fit.add_argument(
        "--out", type=Path, metavar="DIR", help="the run folder (default: runs/, named by the recipe)"
    )
    fit.add_argument(
        "--resume",
        nargs="?",
        const=True,
        default=False,
        choices=("auto",),
        help="go on from the run folder's last checkpoint; `--resume auto`: if there is a run, else begin "
        "one (for a job script that is run again from its top)",
    )

    evaluate = _verb(
        verbs,
        "evaluate",
        _evaluate,
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
        _compare,
        "Put evaluated runs beside each other: tables, plots and a page to look at.",
        """
        zoo compare runs/alibi_wikitext2 runs/rope_wikitext2
        zoo compare runs/*_wikitext2 --protocol nonoverlapping,sliding --lengths 256,512,1024
        zoo compare runs/*_wikitext2 --out comparisons/wikitext2
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
        _sweep,
        "Train one recipe with several encodings and seeds, and compare them.",
        """
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope,none --seeds 0,1,2
        zoo sweep recipes/base/wikitext2.yaml --encodings 'rope,{name: rope, partial: 0.25},[rope, fox]'
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope --set trainer.max_steps=200 --out runs/short
        zoo sweep recipes/base/copy.yaml --encodings alibi,rope --seeds 0,1,2 --print-commands | parallel -j 4
        """,
    )
    sweep.add_argument(
        "recipe", type=Path, metavar="RECIPE", help="a recipe file, with or without an encoding"
    )
    sweep.add_argument(
        "--encodings",
        required=True,
        metavar="A,B",
        help="encodings as a recipe has them: the items of a YAML list",
    )
    sweep.add_argument("--seeds", type=_seeds, default=[0], metavar="N,N", help="seeds (default: 0)")
    _add_set(sweep, "change a key of the recipe, for all runs")
    sweep.add_argument(
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="the folder of the run folders (default: runs)",
    )
    sweep.add_argument(
        "--jobs",
        type=_count,
        metavar="N",
        help="runs at the same time (default: one for each visible GPU; on a CPU one)",
    )
    sweep.add_argument(
        "--print-commands",
        action="store_true",
        help="print the command of each run that is not finished, one a line, and run nothing",
    )

    lists = _verb(
        verbs,
        "list",
        _list,
        "List what there is: encodings, recipes, datasets, tasks or runs.",
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
        _show,
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
        _check,
        "Try on an encoding every law that encodings keep, and print what holds.",
        """
        zoo check rope
        zoo check my_encoding.py
        zoo check rope --set base=500000 --set layout=interleaved
        zoo check '[alibi, {name: shaw, values: false}]'
        """,
    )
    check.add_argument(
        "what",
        metavar="NAME|FILE|ENCODING",
        help="an encoding's name, a Python file that registers some, or one as a recipe has it",
    )
    _add_set(check, "give an option; only the encoding with the options given is tried then")
    return parser


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
