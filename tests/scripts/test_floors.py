"""Strategies that do not do a task score as their closed forms and an independent simulation say."""

import json
from dataclasses import replace

import pytest

import results
from board.floors import floors

SIMULATED = {
    ("copy", "look_up"): {24: 0.63, 48: 0.45, 96: 0.29, 192: 0.19},
    ("reverse", "look_up"): {24: 0.63, 48: 0.45, 96: 0.29, 192: 0.19},
    ("copy", "look_up_3"): {48: 0.93, 96: 0.94, 192: 0.94},
    ("sort", "repeat"): {24: 0.44, 48: 0.64, 96: 0.81, 192: 0.91},
    ("selective_copy", "unordered"): dict.fromkeys((32, 64, 128, 256), 0.55),
    ("associative_recall", "unkeyed"): dict.fromkeys((16, 32, 64, 128), 0.78),
}
"""Shares of tokens, from a program of its own."""


@pytest.fixture(scope="module")
def stored():
    return json.loads((results.OUT / "floors.json").read_text())


@pytest.fixture
def study():
    known = {study.name: study for study in results.read_studies(results.STUDIES)}
    return lambda name: replace(known[name], lengths=[])


def test_floors_are_those_of_another_simulation(stored):
    for (task, strategy), known in SIMULATED.items():
        found = stored[task]["token_accuracy"]
        assert {length: found[str(length)][strategy] for length in known} == pytest.approx(known, abs=0.03)


def test_floors_have_their_closed_forms(stored):
    for length, own in stored["flip_flop"]["accuracy"].items():
        assert own["guess"] == 0.5, length
        # The last instruction before the final read is one to ignore with chance 0.8. 0.02: 4 deviations.
        assert own["repeat"] == pytest.approx(0.2 + 0.8 / 2, abs=0.02), length
    for length, own in stored["associative_recall"]["accuracy"].items():
        # The first of two values is right where both are equal, and else half of the time.
        first = 1 / 8 + 7 / 8 / 2
        assert own["unkeyed"] == pytest.approx(first, abs=0.01)
        tokens = stored["associative_recall"]["token_accuracy"][length]["unkeyed"]
        assert tokens == pytest.approx((first + 1) / 2, abs=0.01)
    for length, own in stored["sort"]["token_accuracy"].items():
        size = (int(length) - 1) // 2
        # The number of different digits among so many, of which only the first may be known.
        different, has_zero = 10 * (1 - 0.9**size), 1 - 0.9**size
        assert own["repeat"] == pytest.approx((size - different + has_zero) / size, abs=0.01)


def test_a_trained_window_has_the_answers_that_lie_in_it(stored):
    for task, ignored in (("flip_flop", 0.8), ("flip_flop_sparse", 0.98), ("flip_flop_dense", 0.1)):
        for length, own in stored[task]["accuracy"].items():
            if int(length) > 24:  # 11 instructions; 0.02: 4 deviations
                assert own["trained_window"] == pytest.approx(1 - ignored**11 / 2, abs=0.02)
    for length, own in stored["max_index"]["accuracy"].items():
        if int(length) > 64:  # the answer is equally likely everywhere
            assert own["trained_window"] == pytest.approx(64 / int(length), abs=0.02)
    # Of reversed symbols those up to the middle of the window: its other half is the answer so far.
    found = stored["reverse"]["token_accuracy"]
    for length, size in ((48, 23), (96, 47), (192, 95)):
        seen = 12 / size
        assert found[str(length)]["trained_window"] == pytest.approx(seen + (1 - seen) / 10, abs=1e-4)
    assert "trained_window" not in {*found["24"], *stored["copy"]["accuracy"]["48"]}


def test_the_stored_floors_are_those_of_the_studies(stored, study):
    shown = [one for one in results.read_studies(results.STUDIES) if one.leaderboard]
    tasks = [page for one in shown for page in one.pages if page.protocols == ["accuracy"]]
    assert stored.keys() == {one.title for one in tasks}
    for one in tasks:
        for own in stored[one.title].values():
            assert {int(length) for length in own} >= {*one.lengths}
    for name in ("copy", "max_index"):
        again = floors(study(name), samples=1000)
        for measure, own in again.items():
            for length, scores in own.items():
                assert stored[name][measure][length] == pytest.approx(scores, abs=0.05)
