"""`evaluate.max_seconds` stops a length, and the lengths that had the time keep their rows."""

import time
from types import SimpleNamespace

import pytest

from zoo.errors import RunError
from zoo.evaluation import measure
from zoo.evaluation.measurement import flat_rows
from zoo.evaluation.store import read_measurements
from zoo.models.transformer import Transformer
from zoo.reports.evaluate import evaluate
from zoo.reports.fit import fit

COST = 1e-3
"""Seconds that the clock of these tests gives a token for each token of its window."""


@pytest.fixture
def clock(monkeypatch):
    """Time passes only while a model reads: with the square of the length."""
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now, monotonic=time.monotonic)
    monkeypatch.setattr(measure, "time", clock)
    real = Transformer.hidden

    def hidden(self, tokens, *more, **named):
        if not self.training:
            clock.now += tokens.numel() * tokens.shape[1] * COST
        return real(self, tokens, *more, **named)

    monkeypatch.setattr(Transformer, "hidden", hidden)
    return clock


@pytest.fixture
def folder(here, recipe):
    return fit(recipe("text", "evaluate.batch_tokens=64"))


def notes(rows):
    return {row["length"]: row.get("note") for row in rows}


def test_a_length_is_stopped_when_its_time_is_used_up(folder, clock, capsys):
    started, lengths = clock.now, [16, 32, 64]
    rows = evaluate([folder], lengths=lengths, sets=["evaluate.max_seconds=9"])
    # 256 tokens of 0.001 s for each token of the window: 4.1, 8.2 and 16.4 s; of 4 batches 3 were read.
    stopped = "stopped after evaluate.max_seconds=9"
    assert notes(rows) == {16: None, 32: None, 64: stopped}
    assert clock.now - started == pytest.approx(256 * COST * (16 + 32 + 3 / 4 * 64))
    assert stopped in capsys.readouterr().out
    assert all("loss_nats" not in row for row in rows if "note" in row)
    again = evaluate([folder], lengths=lengths, sets=["evaluate.max_seconds=40"])
    assert not any(notes(again).values())
    # A stopped length does not replace a measured one.
    evaluate([folder], lengths=lengths, sets=["evaluate.max_seconds=9"])
    assert not any(notes(flat_rows(read_measurements(folder))).values())


def test_the_next_shorter_window_is_read_where_the_longest_takes_too_long(folder, clock):
    sets = ["evaluate.max_seconds=5"]
    rows = evaluate([folder], lengths=[16, 64], protocols=["per_position"], sets=sets)
    assert [(row["length"], row["parameters"]["window"], "note" in row) for row in rows] == [
        (64, 64, True), (16, 16, False),
    ]  # fmt: skip


def test_a_task_is_stopped_too_and_nothing_measured_is_a_failure(here, recipe, clock):
    folder = fit(recipe("max_index", "evaluate.batch_tokens=64"))
    rows = evaluate([folder], lengths=[8, 64], sets=["evaluate.max_seconds=2"])
    assert rows[0]["accuracy"] >= 0 and "evaluate.max_seconds=2" in rows[1]["note"]
    with pytest.raises(RunError, match=r"nothing could be measured: stopped after evaluate\.max_seconds"):
        evaluate([folder], lengths=[64], sets=["evaluate.max_seconds=0.001"])
