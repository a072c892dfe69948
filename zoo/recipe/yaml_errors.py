"""What is wrong with a text that is no YAML, in words that say what to change: PyYAML's are its tokens'."""

from __future__ import annotations

import re

import yaml

from zoo.errors import shorten

_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
"""What YAML counts lines by."""
_KEY = re.compile(r"""(?:^|[\s{,])[^\s'"{}\[\],:#]+:(?=\s|$)""")
_NO_SPACE = re.compile(r"\s*(?:- )?([\w.]+:[^\s:/][^:]*)$")


def explain_yaml_error(error: yaml.MarkedYAMLError, text: str) -> tuple[str, int]:
    """What is wrong, and in which line, from 1; of the fault that the user made, not of where it shows."""
    problem, context = error.problem or "", error.context or ""
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark else 0
    begun = error.context_mark.line if error.context_mark else line
    lines = _BREAK.split(text)
    found = problem.rpartition("found ")[2].strip("'")

    if problem.startswith("found character '\\t'"):
        indents = not lines[line][: mark.column].strip()
        return ("a tab: indent with spaces" if indents else "a tab: separate with spaces"), line + 1
    if problem.startswith("found character "):
        return _needs_quotes(problem.split("'")[1]), line + 1
    if problem.startswith("expected the node content"):
        return _needs_quotes(found), line + 1
    if problem.startswith(("mapping values are not allowed", "could not find expected ':'")):
        return _not_a_pair(lines, line, begun if "could not" in problem else line)
    if problem.startswith(("expected ',' or ']'", "expected ',' or '}'")):
        closing = problem.split("'")[3]
        opening = "[" if closing == "]" else "{"
        return f"the '{opening}' here lacks a comma or its '{closing}'", begun + 1
    if "unexpected end of stream" in problem and "quoted" in context:
        return "the quote that begins here is not closed", begun + 1
    if problem.startswith("expected <block end>"):
        return _out_of_place(found), line + 1
    if problem.startswith("found undefined alias"):
        return _needs_quotes("*"), line + 1
    if problem.startswith("found unknown escape character"):
        return f"\\{found.split(chr(39))[-1]} means nothing in double quotes: use single ones", line + 1
    if "another document" in problem:
        return "a second document begins here (---): a recipe is one", line + 1
    return shorten(problem or context, 200), line + 1


def _needs_quotes(character: str) -> str:
    return f"a value cannot begin with {shorten(character, 40)!r}: put it in quotes"


def _not_a_pair(lines: list[str], line: int, begun: int) -> tuple[str, int]:
    """A colon where none can be, or none where one must be."""
    above = next((n for n in range(min(line, len(lines)) - 1, -1, -1) if lines[n].strip()), None)
    for number in (begun, above):
        glued = _NO_SPACE.match(lines[number].partition(" #")[0].rstrip()) if number is not None else None
        if glued:
            return f"no space after the colon in {shorten(glued[1], 80)!r}", number + 1
    if begun < len(lines) and len(_KEY.findall(lines[begun])) > 1:
        return "two keys in one line: put a value that has ': ' in it in quotes", begun + 1
    if above is not None and _indent(lines[min(line, len(lines) - 1)]) > _indent(lines[above]):
        return f"indented deeper than line {above + 1}, which has a value already", line + 1
    return f"{shorten(lines[begun].strip(), 80)!r} is no `key: value`", begun + 1


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _out_of_place(found: str) -> str:
    match found:
        case "-":
            return "an item of a list (-) where a key is needed: indent it below its key"
        case "?" | "<block mapping start>" | "<block sequence start>" | ":":
            return "the indentation fits no line above"
        case "]" | "}":
            return f"a '{found}' that nothing has opened"
        case "<scalar>":
            return "text after a value that has ended: put all of it in one pair of quotes"
    return f"{shorten(found, 40)!r} is out of place here"
