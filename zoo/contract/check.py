"""`zoo check`: the laws tried on one encoding, or on those of a file, and told as a table."""

from __future__ import annotations

import difflib
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.contract import LAWS, Finding, Law, Subject
from zoo.contract.law import all_of
from zoo.contract.variants import Variants, given, needs, variants
from zoo.encodings import registry
from zoo.errors import InputError, Problem, RunError
from zoo.listing import table
from zoo.progress import progress_bar
from zoo.recipe.options import check_encoding, encoding_label
from zoo.recipe.tree import dotted
from zoo.recipe.yaml_file import read_value

CAN_BE_BUILT = LAWS[0]

WIDTH = 110


@dataclass
class Verdict:
    """What came of one law on all subjects of an encoding."""

    law: Law
    findings: list[tuple[Subject, Finding]] = field(default_factory=list)
    why_not: str = ""

    @property
    def broken(self) -> list[tuple[Subject, Finding]]:
        return [(subject, finding) for subject, finding in self.findings if not finding.held]

    @property
    def word(self) -> str:
        if not self.findings:
            return "does not apply"
        return "NOT HELD" if self.broken else "held"

    @property
    def numbers(self) -> str:
        if not self.findings:
            return self.why_not
        return all_of([finding for _, finding in self.findings]).numbers

    @property
    def tried(self) -> str:
        return f"{len(self.findings) - len(self.broken)} of {len(self.findings)}" if self.findings else ""


def check(what: str, sets: Sequence[str] = ()) -> None:
    """Try every law on an encoding and print what came of it.

    Args:
        what: a name, a Python file (each encoding that it registers), or an encoding as a recipe has it,
            `{name: rope, base: 500000}`.
        sets: `option=value` texts. With options given, only the encoding with them is tried.

    Raises:
        InputError: no such encoding, file or option, or an option that cannot be so.
        RunError: a law is broken.
    """
    asked = [(name, *_subjects(name, found)) for name, found in _asked(what, sets)]
    ends = []
    for name, found, about in asked:
        print(f"{name}: {about}")
        for label, reason in found.refused:
            print(_wrapped(f"  left out: {label}, which it refuses: {reason}"))
        verdicts = examine(found.subjects)
        print(_told(verdicts))
        ends.append(_end(name, verdicts))
        print()
    broken = [end for is_broken, end in ends if is_broken]
    for is_broken, end in ends:
        if not is_broken:
            print(end)
    if broken:
        raise RunError("\n".join(broken))


def examine(subjects: Sequence[Subject], laws: Sequence[Law] | None = None) -> list[Verdict]:
    """Every law on every subject to which it applies, behind a progress bar.

    What cannot be built is tried no further.
    """
    laws = LAWS if laws is None else laws
    verdicts = [Verdict(law) for law in laws]
    with progress_bar(len(laws) * len(subjects), "checking", "law") as bar:
        sound = [subject for subject in subjects if CAN_BE_BUILT.try_on(subject).held]
        for verdict in verdicts:
            concerned = []
            for subject in subjects:
                why_not = _why_not(verdict.law, subject, sound)
                if why_not is None:
                    concerned.append(subject)
                verdict.why_not = verdict.why_not or why_not or ""
            for some in [concerned] if verdict.law.together else [[subject] for subject in concerned]:
                if some:
                    verdict.findings += zip(some, verdict.law.try_on_all(some), strict=True)
                    bar.update(len(some))
            bar.update(len(subjects) - len(concerned))
    return verdicts


def _why_not(law: Law, subject: Subject, sound: Sequence[Subject]) -> str | None:
    if law is CAN_BE_BUILT:
        return None
    return law.does_not_apply(subject) if subject in sound else "it cannot be built"


def _asked(what: str, sets: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The names to try, each with its encoding where options are given, else None."""
    text = what.strip()
    if text.startswith(("{", "[")):
        spec = _with_sets(read_value(text, what), sets)
        yield encoding_label(spec), spec
        return
    names = [text]
    if text.endswith(".py") or os.sep in text:
        names = [description.name for description in _read_file(Path(text))]
    for name in names:
        description = registry.describe(name)
        spec = _with_sets(name, sets) if sets else None
        lacking = [] if spec else needs(description)
        if lacking:
            shown = " ".join(f"--set {option}=..." for option in lacking)
            raise InputError(f"encoding {name!r} cannot be tried without {', '.join(lacking)}: give {shown}")
        registry.load(name)
        yield name, spec


def _read_file(path: Path) -> list[registry.Description]:
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give a Python file or a name")
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
            problems.append(Problem("name is no option: give the name itself", where=f"--set {text}"))
            continue
        own = {**own, key: read_value(value, f"--set {text}")}
    resolved, faults = check_encoding(own, ("encoding",))
    problems += [Problem(told, key=dotted(path)) for path, told in faults.items()]
    if problems:
        raise InputError(problems)
    return resolved


def _subjects(name: str, spec: Any) -> tuple[Variants, str]:
    """What is to be tried, and a word about it."""
    if spec is None:
        description = registry.describe(name)
        found = variants(description)
        summary = description.summary
    else:
        from zoo.encodings.stack import EncodingStack

        strict = isinstance(spec, list) or registry.describe(spec["name"]).builtin
        found = Variants(given(spec, name, strict))
        first = found.subjects[0]
        # What cannot be so is wrong input here, since it was asked for.
        EncodingStack(spec, first.size())
        summary = registry.describe(spec["name"]).summary if isinstance(spec, dict) else "together"
    labels = dict.fromkeys(subject.label for subject in found.subjects)
    kinds = dict.fromkeys(subject.kind for subject in found.subjects)
    return found, f"{summary}\n" + _wrapped(f"  tried as {' and '.join(kinds)}: {', '.join(labels)}")


def _told(verdicts: Sequence[Verdict]) -> str:
    rows = [(v.law.name, v.word, v.tried, v.numbers) for v in verdicts]
    lines = [table(("law", "", "tried", "numbers"), rows)]
    for verdict in verdicts:
        if verdict.broken:
            lines += ["", _wrapped(f"NOT HELD: {verdict.law.name}. {verdict.law.says}")]
            lines += [_wrapped(f"  {subject}: {finding.numbers}") for subject, finding in verdict.broken]
    notes = dict.fromkeys(finding.note for v in verdicts for _, finding in v.findings if finding.note)
    lines += [_wrapped(f"note: {note}") for note in notes]
    return "\n".join(lines)


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
