"""Sequences longer than an encoding or than the data are reported before the training."""

import json

import pytest

from zoo.errors import InputError
from zoo.reports.fit import fit
from zoo.tasks import build_encoding

# An encoding that declares its end, and checks nothing.
ENDING = """
import zoo


@zoo.register("ending")
class Ending(zoo.Encoding):
    \"\"\"Takes `end` tokens.

    Options:
        end: in tokens.
    \"\"\"

    def __init__(self, size: zoo.Size, *, end: int = 5):
        super().__init__(size)
        self.end = end

    @property
    def max_length(self):
        return self.end

    def bias(self, head, q, k):
        return -(head + 1.0) * (q - k).abs()
"""
WAYS = {
    "beside a rotation": "[{name: rope}, {name: ending}]",
    "in a wrapper": "{name: randomized, of: ending, max_position: 64}",
    "in some layers": "{name: interleave, pattern: [alibi, ending]}",
}
"""Over sequences of 8 tokens."""


@pytest.fixture
def ending(here, forgetful_registry):
    (here / "ending.py").write_text(ENDING)
    return "plugins=[ending.py]"


@pytest.mark.parametrize("way", WAYS)
def test_a_trained_length_beyond_the_end_is_refused_at_once(here, recipe, ending, way):
    sets = [ending, f"model.encoding={WAYS[way]}", "model.num_layers=2"]
    with pytest.raises(InputError, match=r"data\.sequence_length: 8 tokens, but the encoding ends at 5"):
        fit(recipe("max_index", *sets))
    assert not (here / "runs").exists()
    build_encoding(recipe("max_index", *sets, "data.sequence_length=5"))


def printed_at_the_start(capsys, folder):
    """The lines before the training about lengths that are not measured; and all lines."""
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines[1:] if line.startswith("will not be measured")], lines


def test_lengths_beyond_the_end_are_reported_before_training(here, recipe, capsys):
    folder = fit(recipe("max_index", "model.encoding=learned", "evaluate.lengths=[8, 16, 12]"))
    message, lines = printed_at_the_start(capsys, folder)
    assert (
        message
        == [lines[1]]
        == ["will not be measured at the end: length 12, 16 (the encoding ends at 8 tokens)"]
    )
    # And are noted in the results, as before.
    rows = json.loads((folder / "evaluation" / "lengths.json").read_text())
    notes = {row["length"]: row.get("note") for row in rows}
    assert set(notes) == {8, 12, 16} and not notes[8]
    assert notes[12].endswith("the encoding ends at 8 tokens") and notes[16] == notes[12]


def test_lengths_that_the_text_cannot_fill_are_reported_before_training(here, recipe, capsys, unmeasured):
    sets = [
        "evaluate.lengths=[16, 5000]",
        "evaluate.max_tokens=5000",
        "evaluate.protocols=[nonoverlapping, sliding]",
    ]
    fit(recipe("text", *sets))
    message, _ = printed_at_the_start(capsys, here)
    assert len(message) == 1
    assert message[0].startswith(
        "will not be measured at the end: length 5000 (the validation text has only "
    )
