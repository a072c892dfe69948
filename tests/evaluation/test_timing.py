"""How long a length takes is said before it is spent, and kept to `evaluate.max_seconds`."""

from types import SimpleNamespace

import pytest

from zoo.errors import RunError
from zoo.evaluation import timing
from zoo.evaluation.measurement import flat_rows
from zoo.evaluation.store import read_measurements
from zoo.evaluation.timing import CostByLength, Stopwatch
from zoo.models.transformer import Transformer
from zoo.reports.evaluate import evaluate
from zoo.training.fit import fit

COST = 1e-3
"""Seconds that the clock of these tests gives a token for each token of its window."""


@pytest.fixture
def clock(monkeypatch):
    """Time passes only while a model reads: with the square of the length."""
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(timing, "time", clock)
    real = Transformer.hidden

    def hidden(self, tokens, *more, **named):
        if not self.training:
            clock.now += tokens.numel() * tokens.shape[1] * COST
        return real(self, tokens, *more, **named)

    monkeypatch.setattr(Transformer, "hidden", hidden)
    return clock


@pytest.fixture
def run(here, recipe):
    """A trained run: `run("text", "evaluate.max_tokens=256")`."""

    def run(kind, *sets):
        return fit(recipe(kind, "evaluate.batch_tokens=64", *sets))

    return run


def note_of(rows):
    return {row["length"]: row.get("note") for row in rows}


@pytest.mark.parametrize("power", [0.0, 1.0, 1.67])
def test_what_a_longer_length_takes_is_foreseen(power):
    known = CostByLength()
    assert known.predict(64, 100) is None
    known.record(64, 64**power)
    assert known.predict(32, 100) is None and known.predict(64, 100) == pytest.approx(100 * 64**power)
    known.record(256, 256**power)
    assert known.predict(1024, 100) == pytest.approx(100 * 1024**power)
    assert known.predict(64, 7) == pytest.approx(7 * 64**power)


def test_noise_is_not_extrapolated():
    known = CostByLength()
    known.record(8, 5.0)
    known.record(16, 1.0)
    assert known.predict(32, 10) == 10.0  # a longer length is never cheaper
    known.record(17, 1e6)
    assert known.predict(34, 1) == 4e6  # nor is it dearer than the square


def test_what_turns_out_longer_is_said_anew(clock):
    said = []
    watch = Stopwatch(tokens=10, limit=None, predicted=None, report=said.append)
    for seconds in (0.5, 1.5, 2.6, 10.0, 0.0):  # for one token each
        clock.now += seconds
        watch.read += 1
        assert watch.has_time()
    # 5 s and 10 s are not worth it; 15 s and 36 s are, and 29 s are less than that.
    assert said == [pytest.approx(46 / 3), pytest.approx(36.5)]


def test_a_slow_first_batch_alone_says_nothing(clock):
    said = []
    watch = Stopwatch(tokens=1000, limit=None, predicted=None, report=said.append)
    for seconds in (2.0, *[0.001] * 999):
        clock.now += seconds
        watch.read += 1
        assert watch.has_time()
    assert said == []


def test_a_length_that_takes_long_says_so_first(run, clock, capsys):
    folder = run("text")
    capsys.readouterr()
    evaluate([folder], lengths=[16, 32, 64, 128])
    # 256 tokens at 0.001 s for each of the 64 or 128 tokens of a window: 16.4 and 32.8 s.
    assert [line for line in capsys.readouterr().err.splitlines() if "about" in line] == [
        "evaluating tiny_text, nonoverlapping, length 64: about 16 s",
        "evaluating tiny_text, nonoverlapping, length 128: about 33 s",
    ]


def test_a_first_length_says_so_after_its_first_batch(run, clock, capsys):
    folder = run("text")
    capsys.readouterr()
    evaluate([folder], lengths=[128])
    assert "nonoverlapping, length 128: about 33 s" in capsys.readouterr().err


def test_a_length_that_takes_too_long_is_stopped_and_longer_ones_are_not_begun(run, clock, capsys):
    folder = run("text")
    started = clock.now
    lengths = [16, 32, 64, 128]
    rows = evaluate([folder], lengths=lengths, sets=["evaluate.max_seconds=9"])
    assert note_of(rows) == {
        16: None,
        32: None,  # 8.2 s
        64: "stopped after evaluate.max_seconds=9 (about 16 s needed)",  # of 4 batches 3 were read
        128: "not begun for evaluate.max_seconds=9 (about 33 s needed)",
    }
    assert clock.now - started == pytest.approx(256 * COST * (16 + 32 + 3 / 4 * 64))
    assert "stopped after evaluate.max_seconds=9" in capsys.readouterr().out
    # What was left out is no measurement, and gives way to one.
    assert all("loss_nats" not in row for row in rows if "note" in row)
    again = evaluate([folder], lengths=lengths, sets=["evaluate.max_seconds=40"])
    assert not any(note_of(again).values())
    assert [row["length"] for row in again] == lengths
    # And takes none's place.
    evaluate([folder], lengths=lengths, sets=["evaluate.max_seconds=9"])
    assert not any(note_of(flat_rows(read_measurements(folder))).values())


def test_it_is_each_lengths_own(run, clock):
    rows = evaluate([run("text")], lengths=[32, 33, 34, 35], sets=["evaluate.max_seconds=10"])
    assert not any(note_of(rows).values())


@pytest.mark.parametrize("protocol, limit", [("nonoverlapping", 20), ("sliding", 20), ("fixed_targets", 2)])
def test_it_holds_for_every_protocol_of_text(run, clock, protocol, limit):
    folder = run("text", "data.documents=120", "evaluate.max_tokens=2000", "evaluate.lengths=[4, 32]")
    sets = [f"evaluate.max_seconds={limit}"]
    short, long = evaluate([folder], lengths=[4, 32], protocols=[protocol], sets=sets)
    assert short["loss_nats"] > 0 and f"evaluate.max_seconds={limit}" in long["note"]


def test_where_the_longest_window_takes_too_long_the_next_is_read(run, clock):
    sets = ["evaluate.max_seconds=5"]
    rows = evaluate([run("text")], lengths=[16, 64], protocols=["per_position"], sets=sets)
    assert [(row["length"], row["parameters"]["window"], "note" in row) for row in rows] == [
        (64, 64, True), (16, 16, False),
    ]  # fmt: skip


def test_it_holds_for_a_task(run, clock):
    rows = evaluate([run("max_index")], lengths=[8, 64], sets=["evaluate.max_seconds=2"])
    assert rows[0]["accuracy"] >= 0 and "evaluate.max_seconds=2" in rows[1]["note"]


def test_nothing_within_the_time_is_a_failure(run, clock):
    with pytest.raises(RunError, match=r"nothing could be measured: stopped after evaluate\.max_seconds"):
        evaluate([run("text")], lengths=[64], sets=["evaluate.max_seconds=0.001"])
