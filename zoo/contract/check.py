"""`zoo check`: try the laws on one encoding, or on all that a file registers, and print a report."""

from __future__ import annotations

import difflib
import os
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from zoo import registry
from zoo.console import progress_bar, table
from zoo.contract import LAWS
from zoo.contract.check_others import check_others
from zoo.contract.output import captured
from zoo.contract.suite import Verdict, examine
from zoo.contract.variants import Variants, given, needs, variants
from zoo.errors import InputError, Problem, RunError
from zoo.recipe.encoding import check_encoding, encoding_label
from zoo.recipe.located_tree import dotted
from zoo.recipe.yaml_file import read_value

WIDTH = 110
MOST_BROKEN, MOST_FAULTS = 4, 3
"""Broken laws that are shown in full, and different faults of each; `--verbose` shows all."""


def check(what: str, sets: Sequence[str] = (), every: bool = False, verbose: bool = False) -> None:
    """Try the laws on an encoding and print a table, or what to fix.

    Args:
        what: a name, a Python file (each encoding that it registers), or an encoding as a recipe has it,
            `{name: rope, base: 500000}`.
        sets: `option=value` texts. With options given, only the encoding with them is tried.
        every: also try the slow laws.
        verbose: print the table even if a law is broken, every fault, and what the encoding printed.

    Raises:
        InputError: no such encoding, file or option, or an option that cannot be so.
        RunError: a law is broken.
    """
    others = _other_kinds(what)
    if others:
        check_others(others, sets)
        if not any(one.kind == "encoding" for one in _described(what.strip())):
            return
    with captured() as output:
        requested = [(name, *_subjects(name, spec)) for name, spec in _requested(what, sets)]
    printed = output.getvalue().splitlines()
    laws = [law for law in LAWS if every or not law.slow]
    left_out = [law.name for law in LAWS if law not in laws]
    command = shlex.join(["zoo", "check", what, *(part for text in sets for part in ("--set", text))])
    ends = []
    for name, found, about in requested:
        print(f"{name}: {about}")
        with progress_bar(len(laws) * len(found.subjects), "checking", "law") as bar:
            verdicts = examine(found.subjects, laws, bar.update)
        if verbose or not any(verdict.broken for verdict in verdicts):
            for label, reason in found.refused:
                print(_wrapped(f"  left out: {label}, which it refuses: {reason}"))
            print(_table(verdicts))
        print(_report(verdicts, verbose), end="")
        for _, finding in (pair for verdict in verdicts for pair in verdict.findings):
            printed += finding.output.splitlines()
        if left_out:
            print(_wrapped(f"not tried, because they are slow: {'; '.join(left_out)} ({command} --all)"))
        ends.append(_end(name, verdicts))
        print()
    if printed and verbose:
        print("printed during the trial (repeated lines are shown once):")
        print("".join(f"  {line}\n" for line in dict.fromkeys(printed)))
    elif printed:
        print(f"{len(printed)} lines were printed during the trial: {command} --verbose shows them\n")
    broken = [end for is_broken, end in ends if is_broken]
    for is_broken, end in ends:
        if not is_broken:
            print(end)
    if broken:
        raise RunError("\n".join(broken))


def _requested(what: str, sets: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The names to try, each with its encoding if options are given, else None."""
    text = what.strip()
    if text.startswith(("{", "[")):
        spec = _with_sets(read_value(text, what), sets)
        yield encoding_label(spec), spec
        return
    names = [one.name for one in _described(text) if one.kind == "encoding"] if _is_file(text) else [text]
    for name in names:
        description = registry.encodings.describe(name)
        spec = _with_sets(name, sets) if sets else None
        missing = [] if spec else needs(description)
        if missing:
            shown = " ".join(f"--set {option}=..." for option in missing)
            raise InputError(f"encoding {name!r} cannot be tried without {', '.join(missing)}: give {shown}")
        registry.encodings.load(name)
        yield name, spec


def _is_file(text: str) -> bool:
    return text.endswith(".py") or os.sep in text


def _described(text: str) -> list[registry.Description]:
    """What a file registers, or what other kind than an encoding has a name."""
    if _is_file(text):
        return _read_file(Path(text))
    if text in registry.encodings.names():
        return []
    return [kind.describe(text) for kind in registry.KINDS.values() if text in kind.all()]


def _other_kinds(what: str) -> list[registry.Description]:
    text = what.strip()
    if text.startswith(("{", "[")):
        return []
    return [one for one in _described(text) if one.kind != "encoding"]


def _read_file(path: Path) -> list[registry.Description]:
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a Python file or a name")
    if not path.is_file():
        # Without their endings, which would make all alike.
        others = [one.stem for one in path.parent.glob("*.py") if one.is_file()]
        near = difflib.get_close_matches(path.stem, others, n=1)
        hint = f"; did you mean {path.parent / near[0]}.py?" if near else ""
        raise InputError(f"{path}: no such file{hint}")
    return registry.read_plugin(path)


def _with_sets(spec: Any, sets: Sequence[str]) -> Any:
    """The encoding with the options that were set, checked as in a recipe."""
    if isinstance(spec, list) and sets:
        raise InputError("--set is for the options of one encoding, not of a list")
    own = {"name": spec} if isinstance(spec, str) else spec
    problems = []
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key:
            problems.append(
                Problem("not of the form option=value, for example base=500000", where=f"--set {text}")
            )
            continue
        if key == "name":
            problems.append(Problem("name is not an option: give the name itself", where=f"--set {text}"))
            continue
        own = {**own, key: read_value(value, f"--set {text}")}
    resolved, faults = check_encoding(own, ("encoding",))
    problems += [Problem(fault, key=dotted(path)) for path, fault in faults.items()]
    if problems:
        raise InputError(problems)
    return resolved


def _subjects(name: str, spec: Any) -> tuple[Variants, str]:
    """The subjects to try, and one line about them."""
    if spec is None:
        description = registry.encodings.describe(name)
        found = variants(description)
        summary = description.summary
    else:
        from zoo.encodings.stack import EncodingStack

        strict = isinstance(spec, list) or registry.encodings.describe(spec["name"]).builtin
        found = Variants(given(spec, name, strict))
        first = found.subjects[0]
        # Options that were asked for and are refused are wrong input.
        EncodingStack(spec, first.size())
        summary = registry.encodings.describe(spec["name"]).summary if isinstance(spec, dict) else "together"
    labels = dict.fromkeys(subject.label for subject in found.subjects)
    kinds = dict.fromkeys(subject.kind for subject in found.subjects)
    return found, f"{summary}\n" + _wrapped(f"  tried as {' and '.join(kinds)}: {', '.join(labels)}")


def _table(verdicts: Sequence[Verdict]) -> str:
    return table(
        ("law", "", "tried", "numbers"), [(v.law.name, v.word, v.tried, v.numbers) for v in verdicts]
    )


def _report(verdicts: Sequence[Verdict], verbose: bool) -> str:
    """What to fix, and what was not tried because of it; or the notes."""
    broken = [verdict for verdict in verdicts if verdict.broken]
    lines = []
    for verdict in broken if verbose else broken[:MOST_BROKEN]:
        lines += ["", _wrapped(f"NOT HELD: {verdict.law.name}. {verdict.law.statement}")]
        faults: dict[tuple[str, str], list[str]] = {}
        for subject, finding in verdict.broken:
            faults.setdefault((finding.where, finding.numbers), []).append(str(subject))
        shown = list(faults.items())[: None if verbose else MOST_FAULTS]
        for (where, numbers), of in shown:
            location = f"{_relative(where)}: " if where else ""
            others = f" and {len(of) - 2} more" if len(of) > 2 else ""
            lines.append(_wrapped(f"  {location}{numbers} ({', '.join(of[:2])}{others})"))
        if len(faults) > len(shown):
            lines.append(f"  and {len(faults) - len(shown)} faults more (--verbose)")
    if broken:
        lines.append("")
        rest = [verdict.law.name for verdict in broken[MOST_BROKEN:]]
        if rest and not verbose:
            lines.append(_wrapped(f"also NOT HELD: {'; '.join(rest)} (--verbose)"))
        stopped = [v for v in verdicts if v.stopped and not v.broken]
        causes = dict.fromkeys(cause for v in stopped for _, cause in v.stopped)
        if stopped:
            lines.append(_wrapped(f"not tried: {_laws(len(stopped))} that need: {'; '.join(causes)}"))
        held = sum(v.word == "held" for v in verdicts)
        lines.append(f"held: {_laws(held)}" + ("" if verbose else " (--verbose shows the table of all)"))
    else:
        notes = dict.fromkeys(finding.note for v in verdicts for _, finding in v.findings if finding.note)
        lines += [_wrapped(f"note: {note}") for note in notes]
    return "".join(f"{line}\n" for line in lines)


def _laws(count: int) -> str:
    return "1 law" if count == 1 else f"{count} laws"


def _relative(where: str) -> str:
    """File and line, relative to the working folder if the file is inside it."""
    return where.removeprefix(f"{os.getcwd()}{os.sep}")


def _end(name: str, verdicts: Sequence[Verdict]) -> tuple[bool, str]:
    """Whether a law is broken, and the last line about an encoding."""
    broken = [v.law.name for v in verdicts if v.broken]
    tried = [v for v in verdicts if v.findings]
    if broken:
        return True, f"{name} breaks {len(broken)} of {len(tried)} laws: {'; '.join(broken)}"
    rest = len(verdicts) - len(tried)
    return False, f"{name} keeps all {len(tried)} laws" + (f" ({rest} do not apply)" if rest else "")


def _wrapped(text: str) -> str:
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.fill(text, WIDTH, subsequent_indent=indent)
