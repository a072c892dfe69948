"""The table of encodings: one row each, its learned parameters, and plugins that cannot be built."""

import re
import sys

import pytest

import zoo
from zoo import cli, registry
from zoo.encodings.base import Size
from zoo.encodings.parameters import learned_parameters, representative
from zoo.encodings.stack import EncodingStack
from zoo.encodings.wrapper import Wrapper
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


def test_a_bare_pattern_lists_encodings(listed):
    for pattern in ("[rs]*", "rope*"):
        rows, _ = listed(pattern)
        expected = [
            n for n in encodings.names() if n.startswith(tuple("rs") if pattern[0] == "[" else "rope")
        ]
        assert [line.split()[0] for line in rows] == expected and expected


def test_one_encoding_is_reported_in_full(capsys):
    assert cli.main(["list", "alibi"]) == 0
    output = capsys.readouterr().out
    for part in (
        "slopes: official | geometric | harmonic = official",
        "paper: ",
        "for: decoder, encoder",
        "from: zoo",
    ):
        assert part in output
    assert cli.main(["list", "learned"]) == 0
    output = capsys.readouterr().out
    # A row of the table for each of 512 positions.
    assert f"learned parameters: {512 * 256:,} (at width 256, 6 layers, 8 heads, length 512)" in output
    assert "error | clamp | interpolate = error (may be changed after training)" in output


def test_a_name_of_any_kind_is_explained_in_80_columns(capsys):
    for name, parts in {
        "copy": ("num_symbols: whole number = 10", "number of different symbols."),
        "adamw": ("betas: list of number = [0.9, 0.95]", "decay rates of the two moments."),
        "hub": ("id: text", "the one split to read, or a slice"),
        "rope": ("    layout: half | interleaved = half", "as in GPT-NeoX"),
    }.items():
        assert cli.main(["list", name]) == 0
        output = capsys.readouterr().out
        assert output.startswith(f"{name}: ") and all(part in output for part in parts), output
        assert max(map(len, output.splitlines())) <= 80


def test_on_a_terminal_a_long_description_goes_on_below(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.main(["list", "datasets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120 and not any(line.endswith("…") for line in lines)
    start = lines[0].index("description")
    words = " ".join(line[start:].strip() for line in lines[1:])
    assert all(registry.datasets.describe(name).summary in words for name in registry.datasets.names())


def test_the_listed_number_of_parameters_is_that_of_the_model():
    for name in encodings.names():
        size = Size(256, 8, 6, 512, encodings.describe(name).decoder)
        spec = representative(name, size)
        count = learned_parameters(name)
        # The encoding inside a wrapper learns nothing here.
        assert count.own == sum(p.numel() for p in EncodingStack(spec, size).parameters()), name
        assert count.wraps == (spec != {"name": name}), name


def test_a_wrapped_encoding_is_not_counted(forgetful_registry, listed):
    @zoo.register("around")
    class Around(Wrapper):
        """Another, with a scale."""

        def __init__(self, size: zoo.Size, *, of: zoo.Encoding = "learned"):
            super().__init__(size, encodings.load("learned")(size) if of == "learned" else of)
            self.scale = zoo_parameter(size.d_model)

    @zoo.register("plainly_around")
    class PlainlyAround(Wrapper):
        """Another, as it is."""

        def __init__(self, size: zoo.Size, *, of: zoo.Encoding):
            super().__init__(size, of)

    rows = cells(listed("*around")[0])
    assert "256 + wrapped" in rows["around"] and "+ wrapped" in rows["plainly_around"]
    assert "as wrapped" in rows["plainly_around"]  # its length is that of the wrapped encoding


def zoo_parameter(width):
    import torch

    return torch.nn.Parameter(torch.ones(width))


def test_an_encoding_only_for_evaluation_names_the_encodings_that_it_replaces(forgetful_registry, listed):
    @zoo.register("instead")
    class Instead(zoo.Encoding):
        """Takes a place."""

        family, replaces = "rotary", ("rope", "alibi")

    (row,) = listed("inst*")[0]
    assert "rope, alibi" in row


def test_an_encoding_that_cannot_be_built_has_a_dash_and_its_error(forgetful_registry, listed):
    @zoo.register("needs_more")
    class NeedsMore(zoo.Encoding):
        """Refuses the size of comparison."""

        def __init__(self, size: zoo.Size):
            raise ValueError("needs 7 heads")

    @zoo.register("fails")
    class Fails(zoo.Encoding):
        """Has a fault."""

        def __init__(self, size: zoo.Size):
            raise KeyError("lost")

    rows, below = listed("encodings")
    assert [line.split()[0] for line in rows] == encodings.names()
    assert "-" in cells(rows)["needs_more"] and "-" in cells(rows)["fails"]
    assert "not counted: encoding 'needs_more': needs 7 heads" in below
    (fails,) = [line for line in below if "'fails'" in line]
    assert fails.startswith("not counted: ") and fails.endswith(
        "encoding 'fails' cannot be built: KeyError: 'lost'"
    )
    assert "test_listing.py:" in fails


def test_the_description_starts_within_100_columns(capsys):
    assert cli.main(["list", "encodings"]) == 0
    assert capsys.readouterr().out.splitlines()[0].index("description") < 75
