"""The effective length against the rule, length by length."""

import pandas as pd
import pytest

from zoo.comparison.statistics import effective_length


def effective(protocol, measure, column, scores):
    rows = [{"length": length, column: score} for length, score in scores.items()]
    return effective_length(pd.DataFrame(rows).assign(protocol=protocol, measure=measure, train_length=64))


@pytest.mark.parametrize("scores, expected", [
    ({32: 0.2, 64: 1.0, 128: 0.85, 256: 0.84, 512: 0.9}, (128, False)),
    ({64: 1.0, 128: 0.9, 256: 0.9}, (256, True)),
    ({64: 0.8, 128: 0.69, 256: 0.67}, (128, False)),
    ({64: 1.0, 128: None, 256: 1.0}, (64, False)),
    ({64: 0.49, 128: 0.49}, (None, False)),
    ({128: 1.0, 256: 1.0}, (None, False)),
])  # fmt: skip
def test_an_accuracy_keeps_a_share_of_that_at_the_trained_length(scores, expected):
    assert effective("accuracy", "accuracy", "mean", scores) == expected


def test_a_loss_counts_under_fixed_targets_alone():
    losses = {64: 3.0, 128: 3.04, 256: 3.06, 512: 2.9}
    assert effective("fixed_targets", "bits_per_byte", "loss_nats", losses) == (128, False)
    assert effective("nonoverlapping", "bits_per_byte", "loss_nats", losses) == (None, False)
