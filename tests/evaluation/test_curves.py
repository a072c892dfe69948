"""Which rows are one curve."""

import pytest
from rows import task_row, text_row

from zoo.evaluation.curves import main_measure, panels


def labels(rows):
    (panel,) = panels(rows)
    return [curve.label for curve in panel.curves]


def test_a_panel_for_each_protocol_with_its_parameters():
    rows = [
        text_row(protocol="sliding", parameters={"stride": 0.5}),
        text_row(protocol="sliding", parameters={"stride": 16}),
        text_row(protocol="sliding", parameters={"stride": 0.5}, length=128),
        text_row(protocol="per_position", parameters={"window": 8192, "bins_per_octave": 2}),
        task_row(),
    ]
    made = panels(rows)
    assert [panel.title for panel in made] == [
        "sliding (stride 0.5)",
        "sliding (stride 16)",
        "per_position (bins per octave 2, window 8192)",
        "accuracy",
    ]
    assert made[0].lengths == [64, 128]
    assert [panel.measure for panel in made] == ["bits_per_byte"] * 3 + ["accuracy"]


def test_rows_of_old_have_no_parameters():
    old = text_row()
    del old["parameters"], old["targets"]
    assert len(panels([old, text_row(length=128)])) == 1


def test_seeds_are_one_curve_with_their_mean():
    rows = [text_row(value=1.0), text_row(value=2.0, seed=1, run="tiny-2"), text_row(length=128, value=None)]
    ((curve,),) = (panel.curves for panel in panels(rows))
    assert curve.label == "alibi" and curve.seeds == 2
    assert curve.mean(64, "bits_per_byte") == 1.5 and curve.mean(128, "bits_per_byte") is None


@pytest.mark.parametrize(
    "change, told",
    [
        ({"encoding": "rope"}, ["alibi", "rope"]),
        ({"checkpoint": "checkpoints/best.ckpt"}, ["alibi (best.ckpt)", "alibi (last.ckpt)"]),
        ({"targets": "ffffff", "tokens": 99}, ["alibi (4,096 tokens)", "alibi (99 tokens)"]),
        ({"targets": "ffffff"}, ["alibi (0a0a0a)", "alibi (ffffff)"]),
        ({"run": "other"}, ["alibi (other)", "alibi (tiny)"]),  # the same seed twice
    ],
)
def test_what_is_not_the_same_stands_apart_and_is_told(change, told):
    rows = [text_row(), text_row(length=128), text_row(**change), text_row(length=128, **change)]
    assert labels(rows) == told
    assert all(len(curve.rows) == 2 for curve in panels(rows)[0].curves)


def test_examples_of_each_length_are_its_own():
    """Their digests differ from length to length, and are one curve all the same."""
    assert labels([task_row(64), task_row(128)]) == ["alibi"]
    assert labels([task_row(64), task_row(128), task_row(64, examples=7)]) == [
        "alibi (100 examples)",
        "alibi (7 examples)",
    ]


def test_a_note_belongs_to_the_curve_of_its_encoding():
    rows = [
        text_row(),
        text_row(length=128, note="too long"),
        text_row(length=128, encoding="rope", note="no"),
    ]
    (panel,) = panels(rows)
    assert [(curve.label, len(curve.rows)) for curve in panel.curves] == [("alibi", 2), ("rope", 1)]


def test_what_a_panel_is_about():
    assert main_measure([task_row(), text_row()]) == "accuracy"
    masked = text_row()
    del masked["bits_per_byte"]
    assert main_measure([masked]) == "loss_nats"
    assert main_measure([text_row(value=None), text_row(note="too long")]) is None
