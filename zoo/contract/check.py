"""`zoo check`: try the laws on the classes of a file or on one encoding. `fit` tries a few of them."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from zoo import registry
from zoo.console import progress_bar, table
from zoo.contract import LAWS, dataset_laws, protocol_laws
from zoo.contract.law import (
    BUILDS,
    CAUSAL,
    CHANGES,
    REACHES,
    SHAPES,
    SPELLED,
    Law,
    Verdict,
    captured,
    examine,
)
from zoo.contract.numerics import PRECISION
from zoo.contract.subject import Subject, subjects_of, subjects_with
from zoo.contract.training import GRADIENTS
from zoo.errors import InputError, Problem, RunError
from zoo.recipe import Recipe
from zoo.recipe.encoding import check_encoding, encoding_label
from zoo.recipe.tree import dotted, read_value

if TYPE_CHECKING:
    from tqdm import tqdm

WIDTH = 110
QUICK = (BUILDS, SPELLED, SHAPES, REACHES, CHANGES, CAUSAL, GRADIENTS, PRECISION)
"""The laws of encodings that `fit` tries, the last one only in bf16 or fp16."""


@dataclass
class _Requested:
    name: str
    summary: str
    subjects: list[Any] = field(default_factory=list)
    laws: list[Law] = field(default_factory=list)
    refused: list[tuple[Any, str]] = field(default_factory=list)


def check(
    what: str, sets: Sequence[str] = (), every: bool = False, verbose: bool = False, quick: bool = False
) -> None:
    """Try the laws and print a table, or each fault as soon as it is found.

    Args:
        what: a name, a Python file (each class that it registers), or an encoding as in a recipe,
            `{name: rope, base: 500000}`.
        sets: `option=value` texts. With options given, only the encoding with them is tried.
        every: also try the slow laws.
        verbose: print the table even if a law fails, every fault, and the output of the plugin.
        quick: try only those laws of encodings that `fit` tries.

    Raises:
        InputError: no such name, file or option, or an invalid value.
        RunError: a law fails.
    """
    passed, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        with captured() as output:
            requested = [*_requested(what.strip(), sets, Path(folder))]
        printed = output.getvalue()
        for one in requested:
            _print_subjects(one)
            laws = [law for law in one.laws if every or not law.slow]
            if quick and one.laws is LAWS:
                laws = [law for law in laws if law.name in QUICK]
            with progress_bar(len(laws), "checking", "law") as bar:
                report = functools.partial(_report_faults, bar, sys.stdout, verbose)
                with captured() as output:
                    verdicts = examine(one.subjects, laws, report)
            printed += output.getvalue()
            _print_report(one, verdicts, verbose)
            if quick and len(laws) < len(one.laws):
                print(f"not tried: the other {len(one.laws) - len(laws)} laws (without --quick)")
            elif len(laws) < len(one.laws):
                slow = "; ".join(law.name for law in one.laws if law not in laws)
                print(_wrapped(f"not tried, because they are slow (--all tries them): {slow}"))
            print()
            failures = any(verdict.failures for verdict in verdicts)
            (failed if failures else passed).append(_last_line(one.name, verdicts))
    lines = [*dict.fromkeys(printed.splitlines())]
    if lines and verbose:
        print("output of the plugin (repeated lines are shown once):")
        print("".join(f"  {line}\n" for line in lines))
    elif lines:
        print(f"the plugin printed {len(lines)} different lines (--verbose shows them)\n")
    print("".join(f"{line}\n" for line in passed), end="")
    if failed:
        raise RunError("\n".join(failed))


def _requested(what: str, sets: Sequence[str], folder: Path) -> Iterator[_Requested]:
    options = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key:
            message = "not of the form option=value, as in base=500000"
            raise InputError(Problem(message, where=f"--set {text}"))
        options[key] = read_value(value, f"--set {text}")
    if what.startswith(("{", "[")):
        yield _with_options(read_value(what, what), options)
        return
    if what.endswith(".py") or os.sep in what:
        found = registry.load_plugin(what)
    else:
        kinds = [kind for kind in registry.KINDS.values() if what in kind.all()]
        found = [kind.describe(what) for kind in kinds[:1] or [registry.encodings]]
    for one in found:
        registry.KINDS[one.kind].load(one.name)
        if one.kind == "encoding":
            yield _with_options(one.name, options) if options else _with_defaults(one)
        elif one.kind == "dataset":
            subject: Any = dataset_laws.DatasetSubject(one, options, folder)
            yield _Requested(one.name, one.summary, [subject], dataset_laws.LAWS)
        elif one.kind == "protocol":
            subject = protocol_laws.ProtocolSubject(one, options, folder)
            yield _Requested(one.name, one.summary, [subject], protocol_laws.LAWS)
        else:
            if one.kind == "optimizer":  # the rules of recipes are tried on it
                dataset_laws.recipe_with(
                    {"name": "copy", "sequence_length": 16, "batch_size": 4},
                    optimizer={"name": one.name, "lr": 1e-3, **options},
                )
            yield _Requested(one.name, one.summary)


def _with_defaults(one: registry.Description) -> _Requested:
    missing = [o.name for o in one.options if o.default is registry.REQUIRED and not o.wraps]
    if missing:
        shown = " ".join(f"--set {option}=..." for option in missing)
        raise InputError(f"encoding {one.name!r} cannot be tried without {', '.join(missing)}: give {shown}")
    subjects, refused = subjects_of(one)
    return _Requested(one.name, one.summary, subjects, LAWS, refused)


def _with_options(spec: Any, options: dict[str, Any]) -> _Requested:
    if options and isinstance(spec, list):
        raise InputError("--set is for the options of one encoding, not of a list")
    if not isinstance(spec, list):
        spec = {"name": spec, **options} if isinstance(spec, str) else {**spec, **options}
    resolved, faults = check_encoding(spec, ("encoding",))
    if faults:
        raise InputError([Problem(fault, key=dotted(path)) for path, fault in faults.items()])
    subjects = subjects_with(resolved)
    _ = subjects[0].stack  # raises InputError for options that the encoding refuses
    summary = "; ".join(description.summary for description in subjects[0].descriptions)
    return _Requested(encoding_label(resolved), summary, subjects, LAWS)


def _print_subjects(one: _Requested) -> None:
    print(f"{one.name}: {one.summary}", flush=True)
    if one.laws is LAWS:
        kinds = dict.fromkeys(subject.kind for subject in one.subjects)
        labels = dict.fromkeys(subject.label for subject in one.subjects)
        all_labels = f": {', '.join(labels)}" if len(labels) > 1 else ""
        print(_wrapped(f"  tried as {' and '.join(kinds)}{all_labels}"), flush=True)


def _report_faults(bar: tqdm, stdout: TextIO, verbose: bool, verdict: Verdict) -> None:
    """Print the faults of one law, if there are any, while the output of the plugin is captured."""
    bar.update()
    if not verdict.failures:
        return
    lines = [f"FAILED: {verdict.law.name}. {verdict.law.statement}"]
    faults: dict[tuple[str, str], list[str]] = {}
    for subject, finding in verdict.failures:
        faults.setdefault((finding.where, finding.numbers), []).append(str(subject))
    for (where, numbers), subjects in [*faults.items()][: None if verbose else 2]:
        location = f"{where.removeprefix(f'{os.getcwd()}{os.sep}')}: " if where else ""
        lines.append(f"  {location}{numbers} ({', '.join(subjects)})")
    bar.clear()
    print("\n".join(map(_wrapped, lines)), file=stdout, flush=True)


def _print_report(one: _Requested, verdicts: Sequence[Verdict], verbose: bool) -> None:
    """The table and notes, or the number of laws that were not tried because others failed."""
    failed = any(verdict.failures for verdict in verdicts)
    if verdicts and (verbose or not failed):
        for subject, reason in one.refused:
            print(_wrapped(f"  left out: {subject}, which it refuses: {reason}"))
        print(table(("law", "", "tried", "numbers"), [verdict.row for verdict in verdicts]))
    causes = dict.fromkeys(name for verdict in verdicts for name in verdict.causes)
    if failed and causes:
        count = sum(bool(verdict.causes) and not verdict.failures for verdict in verdicts)
        print(_wrapped(f"not tried: {count} laws that need: {'; '.join(causes)}"))
    if failed and not verbose:
        print("(--verbose shows all laws and faults)")
    for note in dict.fromkeys(finding.note for v in verdicts for _, finding in v.findings if finding.note):
        print(_wrapped(f"note: {note}"))


def _last_line(name: str, verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return f"{name} is imported; there are no laws for its kind"
    failed = [verdict.law.name for verdict in verdicts if verdict.failures]
    tried = sum(bool(verdict.findings) for verdict in verdicts)
    if failed:
        return f"{name} fails {len(failed)} of {tried} laws: {'; '.join(failed)}"
    rest = len(verdicts) - tried
    return f"{name} passes all {tried} laws" + (f" ({rest} do not apply)" if rest else "")


def _wrapped(text: str) -> str:
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.fill(text, WIDTH, subsequent_indent=indent)


NARROW, FEW = 512, 2
"""Width and layers of a cheap model."""
FARTHEST = 4096
"""The longest sequence that is tried before training, in tokens."""
MOST = 25_000_000
"""Width squared times layers of the largest model that is tried."""


def check_plugin(recipe: Recipe) -> None:
    """Try some laws on a recipe's encoding, on the CPU, in about a second.

    A law that a small model breaks counts only if a model of the recipe's size breaks it too: some encodings
    accept no other size.

    Raises:
        InputError: a hook is misspelled or returns a wrong shape, a decoder's output depends on a later
            token, a parameter has no gradient, nothing changes, or a length of `evaluate.lengths` cannot be
            computed and `max_length` does not say so. Each problem has hook, file and line.
    """
    spec, model = recipe.as_dict()["model"]["encoding"], recipe.model
    reduced = "16" in str(recipe.trainer.precision)
    laws = [law for law in LAWS if law.name in QUICK and (reduced or law.name != PRECISION)]
    narrow = model.d_model if model.d_model <= NARROW else 8 * model.num_heads
    length, problems = recipe.data.sequence_length, []
    longest = min(FARTHEST, max([length, *recipe.evaluate.lengths]))
    for width, layers in ((narrow, min(FEW, model.num_layers)), (model.d_model, model.num_layers)):
        config = {"d_model": width, "num_heads": model.num_heads, "num_layers": layers, "d_ff": 64}
        subject = Subject(spec, model.kind, config=config, length=length, longest=longest)
        if width**2 * layers <= MOST and subject.refusal is None:
            with captured():
                failed = [verdict for verdict in examine([subject], laws) if verdict.failures]
            if not failed:
                return
            problems = [_problem(verdict, subject) for verdict in failed]
    if problems:
        raise InputError(problems)


def _problem(verdict: Verdict, subject: Subject) -> Problem:
    ((_, finding),) = verdict.failures
    where = finding.where or subject.plugins[0].where
    about = next((one for one in subject.plugins if where.startswith(f"{one.file}:")), subject.plugins[0])
    what = about.name if about.package else str(about.file)
    return Problem(
        f"encoding {about.name!r} was tried before training: {verdict.law.name}: {finding.numbers} "
        f"(zoo check {what})",
        key="model.encoding",
        where=where,
    )
