"""The command line: verbs, and nothing else. What a verb needs is imported when the verb is called.

Each says when signals may raise: those that only read and print never do.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.arguments import LISTS, make_parser
from zoo.console import waiting
from zoo.errors import InputError, RunError
from zoo.launch.ranks import is_distributed, is_first_process, report_once
from zoo.launch.signals import INTERRUPTED, may_set_handlers, raise_on_signals

if TYPE_CHECKING:
    from zoo.recipe import Recipe

DONE, FAILED, WRONG_INPUT = 0, 1, 2

DRAWING = ("matplotlib.figure", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 the run failed, 2 wrong input, 130 interrupted.

    An exception that nobody foresaw keeps its traceback.
    """
    options = make_parser(VERBS).parse_args(arguments)
    with _signal_handlers_restored():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        with report_once():
            _check_working_directory()
        options.verb(options)
        sys.stdout.flush()
    except InputError as error:
        return _ended(error, WRONG_INPUT)
    except RunError as error:
        return _ended(error, FAILED)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except SystemExit as error:
        # Lightning turns Ctrl-C into an exit of its own. With our code another process reports it.
        if isinstance(error.__context__, KeyboardInterrupt) and error.code != INTERRUPTED:
            return _interrupted(error.__context__)
        if error.code:
            raise
        # Code that is not ours has left, and nothing of what was asked for need have been done.
        return _ended("stopped before its end: something called exit()", FAILED)
    except BrokenPipeError:
        # The reader of our output has left (`| head`); Python would complain once more while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        from zoo.files import full_disk_message, is_disk_full

        if not is_disk_full(error):
            raise
        return _ended(f"{full_disk_message(error)}; make room and try again", FAILED)
    return DONE


def _ended(message: object, code: int) -> int:
    print(message, file=sys.stderr)
    return code


def _interrupted(error: KeyboardInterrupt) -> int:
    # Of processes that were started together the first reports it.
    if str(error) or is_first_process():
        print(str(error) or "interrupted", file=sys.stderr)
    return INTERRUPTED


def _check_working_directory() -> None:
    """Raises InputError where the working directory is gone: no path resolves, and torch does not load."""
    try:
        os.getcwd()
    except OSError as error:
        raise InputError(f"the working directory cannot be used ({error.strerror}): cd to another") from error


@contextmanager
def _signal_handlers_restored() -> Iterator[None]:
    """Restore the handlers of signals after the block: a verb replaces them, until its end is reported."""
    if not may_set_handlers():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fit(options: argparse.Namespace) -> None:
    from zoo.launch.ranks import exit_when_parent_dies

    exit_when_parent_dies()
    from zoo.recipe import read_recipe, with_locations

    _set_recipe(options)
    recipe = read_recipe(options.recipe, options.set)
    with waiting(f"{recipe.name}: loading torch and lightning"):
        from zoo.training.fit import fit

        raise_on_signals(*_late_imports(recipe))
    try:
        fit(recipe, out=options.out, resume=options.resume, ignore_signals=True)
    except InputError as error:
        raise with_locations(error, options.recipe, options.set) from error


def _set_recipe(options: argparse.Namespace) -> None:
    """`fit FILE` and `fit --recipe FILE` are the same; of `--resume FILE` the value is the file."""
    given = [path for path in (options.file, options.recipe) if path is not None]
    if options.resume not in (True, False, "auto"):
        if given:
            raise InputError(f"--resume {options.resume}: --resume takes nothing, or `auto`")
        given, options.resume = [Path(options.resume)], True
    if len(given) != 1:
        two = f"; there are two: {given[0]} and --recipe {given[1]}" if given else ""
        raise InputError(f"fit which recipe? zoo fit RECIPE (`zoo list recipes` has those there are){two}")
    options.recipe = given[0]


def _late_imports(recipe: Recipe) -> list[str]:
    """The modules that a training imports only when it needs them."""
    late = {
        "torch.utils.tensorboard": "tensorboard" in recipe.logging,
        "torch._dynamo": recipe.compile is True,
    }
    return [*DRAWING, *(module for module, is_used in late.items() if is_used)]


def _evaluate(options: argparse.Namespace) -> None:
    from zoo.launch.ranks import exit_when_parent_dies

    exit_when_parent_dies()
    # Processes that were started together meet first; then the first of them reports it.
    if not is_distributed() and not all(path.exists() for path in options.paths):
        from zoo.runs.folder import validate_present

        validate_present(options.paths)
    with waiting("loading torch and lightning"):
        from zoo.reports.evaluate import evaluate

        raise_on_signals(*DRAWING)
    evaluate(options.paths, options.lengths, options.protocol, options.set, options.devices)


def _sweep(options: argparse.Namespace) -> None:
    with waiting("loading torch"):
        from zoo.sweep.matrix import read_encodings
        from zoo.sweep.sweep import Sweep

        encodings = read_encodings(options.encodings)
        if not options.print_commands:
            raise_on_signals("torch", "zoo.reports.compare", *DRAWING)
    sweep = Sweep(options.recipe, encodings, options.seeds, options.set, options.out, options.jobs)
    if options.print_commands:
        sweep.print_commands()
    elif options.slurm is not None:
        sweep.submit(options.slurm)
    elif options.compare_only:
        sweep.compare()
    else:
        sweep.run()


def _compare(options: argparse.Namespace) -> None:
    if options.diff:
        if options.paths:
            raise InputError("--diff takes two runs and no more: zoo compare --diff runs/a runs/b")
        with waiting("reading the runs"):
            from zoo.reports.compare import diff

            difference = diff(*options.diff)
        print(difference)
        return
    if not options.paths:
        raise InputError("compare which runs? zoo compare runs/a runs/b, or --diff runs/a runs/b")
    with waiting("loading matplotlib"):
        from zoo.reports.compare import OUT, compare

        raise_on_signals(*DRAWING)
    compare(
        options.paths, options.out or OUT, options.protocol, options.lengths, options.force,
        options.reference, options.models,
    )  # fmt: skip


def _import(options: argparse.Namespace) -> None:
    from zoo.pretrained.published import read_published

    published = read_published(options.origin, options.ignore)
    with waiting("loading torch"):
        from zoo.pretrained.import_model import import_model

    folder = import_model(published, options.name, options.set, options.out)
    length = published.decoder.length
    print(f"done: {folder} holds this {published.name}, trained on {length:,} tokens at a time")
    print(f"look further: python -m zoo evaluate {folder} --lengths {length},{2 * length}")


def _export(options: argparse.Namespace) -> None:
    with waiting("loading torch"):
        from zoo.pretrained.export import export

    with waiting(f"writing {options.out}"):
        exported = export(options.path, options.out, options.format, options.set)
    if exported.difference is not None:
        own = f"with code that imports the zoo ({exported.reason})"
        kind = f"as {exported.architecture}" if exported.architecture else own
        print(f"exported {kind}; its logits differ from the run's by at most {exported.difference:.1e}")
    print(f"done: {options.out}; {exported.loaded_by} loads it")


def _list(options: argparse.Namespace) -> None:
    what, pattern = options.what, options.pattern
    if what not in LISTS and pattern is None:
        what, pattern = "encodings", what
    with waiting("reading"):
        from zoo.listing import listing

        listed = listing(what, pattern)
    print(listed)


def _show(options: argparse.Namespace) -> None:
    if options.schema:
        import json

        from zoo.recipe import json_schema

        print(json.dumps(json_schema(), indent=2))
        return
    if options.recipe is None:
        raise InputError("show what? A recipe file (show recipes/alibi_wikitext2.yaml), or --schema")
    with waiting(f"reading {options.recipe}"):
        from zoo.recipe import dump, read_recipe

        recipe = read_recipe(options.recipe, options.set)
    sets = "".join(f" --set {text}" for text in options.set)
    print(f"# {options.recipe}{sets}, resolved\n{dump(recipe)}", end="")


def _check(options: argparse.Namespace) -> None:
    with waiting("loading torch"):
        from zoo.contract.check import check

        raise_on_signals("torch._dynamo")
    check(options.what, options.set, options.all, options.verbose)


def _completion(options: argparse.Namespace) -> None:
    from zoo.completion import completion

    print(completion(make_parser(VERBS), options.shell))


VERBS = {
    "fit": _fit, "evaluate": _evaluate, "compare": _compare, "sweep": _sweep, "import": _import,
    "export": _export,
    "list": _list, "show": _show, "check": _check, "completion": _completion,
}  # fmt: skip
