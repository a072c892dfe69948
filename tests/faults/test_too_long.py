"""Sequences longer than an encoding or than the data are reported before the training."""

import json

import pytest

from zoo import cli, registry
from zoo.contract.subject import HEADS, LAYERS, LENGTH, WIDTH
from zoo.encodings.base import Size
from zoo.encodings.stack import EncodingStack
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


def test_every_encoding_takes_the_length_that_it_is_trained_for(spec_of):
    for name in registry.encodings.names():
        causal = registry.encodings.describe(name).decoder
        stack = EncodingStack(spec_of(name), Size(WIDTH, HEADS, LAYERS, LENGTH, causal))
        for training in (True, False):
            stack.train(training)
            assert stack.max_length is None or stack.max_length >= LENGTH, (name, training)


@pytest.mark.parametrize("way", WAYS)
def test_a_trained_length_beyond_the_end_is_refused_at_once(here, recipe, ending, way):
    sets = [ending, f"model.encoding={WAYS[way]}", "model.num_layers=2"]
    with pytest.raises(InputError, match=r"data\.sequence_length: 8 tokens, but the encoding ends at 5"):
        fit(recipe("max_index", *sets))
    assert not (here / "runs").exists()
    build_encoding(recipe("max_index", *sets, "data.sequence_length=5"))


@pytest.mark.parametrize(
    "encoding, message",
    [
        ("{name: learned, table_length: 7}", "table_length 7 is shorter than the trained length 8"),
        ("{name: shape, of: {name: learned, table_length: 20}, max_offset: 14}", "table_length: 21"),
    ],
)
def test_an_end_below_the_trained_length_is_refused_by_the_encoding(here, recipe, encoding, message):
    with pytest.raises(InputError) as caught:
        fit(recipe("max_index", f"model.encoding={encoding}"))
    assert "model.encoding" in str(caught.value) and message in str(caught.value)
    assert not (here / "runs").exists()


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


def test_an_end_that_training_alone_has_is_none(here, recipe, capsys):
    """Positions are drawn from a range while it is trained, and counted when it is evaluated."""
    spec = "{name: randomized, of: sinusoidal, max_position: 8, evaluation: plain}"
    fit(recipe("max_index", f"model.encoding={spec}", "evaluate.lengths=[8, 16]"))
    assert printed_at_the_start(capsys, here)[0] == []


def test_lengths_that_the_text_cannot_fill_are_reported_before_training(here, recipe, capsys):
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


def test_reading_the_end_of_the_encoding_leaves_the_model_in_training(here, recipe):
    """The end is read with the model in evaluation mode."""
    from zoo.data import open_data
    from zoo.evaluation.measure import unmeasurable_lengths
    from zoo.tasks import build_task

    one = recipe("text", "evaluate.lengths=[16, 64]")
    source = open_data(one)
    task = build_task(one, source.vocab_size)
    assert unmeasurable_lengths(task, source) == []
    assert all(module.training for module in task.modules())


def test_evaluating_only_lengths_beyond_the_end_reads_nothing(here, recipe, capsys):
    fit(recipe("max_index", "model.encoding=learned", "evaluate.lengths=[8]"))
    capsys.readouterr()
    assert cli.main(["evaluate", "runs/tiny", "--lengths", "16,1000000"]) == 1
    assert capsys.readouterr().err == "nothing could be measured: the encoding ends at 8 tokens\n"
