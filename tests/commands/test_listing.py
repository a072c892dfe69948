"""The table of encodings: one row each, its learned parameters, and plugins that cannot be built."""

import re

import pytest

import zoo
from zoo import cli
from zoo.encodings.base import Size
from zoo.encodings.parameters import learned_parameters, representative
from zoo.encodings.stack import EncodingStack
from zoo.registry import encodings


@pytest.fixture
def listed(capsys):
    """Run `zoo list` and give the lines of the table and those below it."""

    def listed(*arguments):
        assert cli.main(["list", *arguments]) == 0
        head, *lines = capsys.readouterr().out.splitlines()
        assert head.split()[0] == "name"
        gap = lines.index("")
        return lines[:gap], lines[gap + 1 :]

    return listed


def cells(lines):
    return {line.split()[0]: re.split(r"\s{2,}", line) for line in lines}


def test_every_encoding_is_listed(listed):
    rows, below = listed("encodings")
    assert [line.split()[0] for line in rows] == encodings.names()
    assert listed()[0] == rows
    assert below[0] == "parameters: learned, at width 256, 6 layers, 8 heads, length 512"
    assert not [line for line in below if line.startswith(("cannot be used", "not counted"))]


def test_a_name_of_any_kind_is_explained(capsys):
    for name, parts in {
        "copy": ("num_symbols: whole number = 10", "number of different symbols."),
        "adamw": ("betas: list of number = [0.9, 0.95]", "decay rates of the two moments."),
        "hub": ("id: text", "the one split to read, or a slice"),
        "rope": ("    layout: half | interleaved = half", "as in GPT-NeoX"),
    }.items():
        assert cli.main(["list", name]) == 0
        output = capsys.readouterr().out
        assert output.startswith(f"{name}: ") and all(part in output for part in parts), output


def test_the_listed_number_of_parameters_is_that_of_the_model():
    for name in encodings.names():
        size = Size(256, 8, 6, 512, encodings.describe(name).decoder)
        spec = representative(name, size)
        count, wraps = learned_parameters(name)
        # The encoding inside a wrapper learns nothing here.
        assert count == sum(p.numel() for p in EncodingStack(spec, size).parameters()), name
        assert wraps == (spec != {"name": name}), name


def test_an_encoding_that_cannot_be_built_has_a_dash_and_its_error(forgetful_registry, listed):
    @zoo.register("fails")
    class Fails(zoo.Encoding):
        """Has a fault."""

        def __init__(self, size: zoo.Size):
            raise KeyError("lost")

    rows, below = listed("encodings")
    assert [line.split()[0] for line in rows] == encodings.names() and "-" in cells(rows)["fails"]
    (fails,) = [line for line in below if "'fails'" in line]
    assert fails.startswith("not counted: ") and "test_listing.py:" in fails and "KeyError: 'lost'" in fails
