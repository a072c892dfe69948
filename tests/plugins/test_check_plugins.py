"""`zoo check` of a file with a dataset or a protocol: all laws hold, or the broken one is named."""

import pytest
from examples import DATASET, OPTIMIZER, PROTOCOL

from zoo import cli

UNSEEDED = DATASET.replace("import zoo\n", "import random\n\nimport zoo\n").replace(
    "numbers = chance.numbers(size, self.symbols)",
    "numbers = [random.randrange(self.symbols) for _ in range(size)]",
)
OUT_OF_VOCABULARY = DATASET.replace("[sum(numbers) % self.symbols]", "[sum(numbers) % self.symbols + 16]")
LONG_ANSWER = DATASET.replace("[sum(numbers) % self.symbols]", "2 * [sum(numbers) % self.symbols]")
WRONG_LOSS = """
from dataclasses import replace

import zoo
from zoo.evaluation.protocols.nonoverlapping import Nonoverlapping


@zoo.register.protocol("wrong_loss")
class WrongLoss(Nonoverlapping):
    '''Reports another loss than the model has.'''

    def plan(self, task, source, lengths):
        def spoil(length):
            return replace(length, score=lambda how: {**length.score(how), "loss_nats": 1.0})

        plans = super().plan(task, source, lengths)
        return [replace(plan, lengths=[*map(spoil, plan.lengths)]) for plan in plans]
"""


@pytest.mark.parametrize(
    ("source", "broken"),
    [
        (DATASET, None),
        (PROTOCOL, None),
        (UNSEEDED, "the same seed gives the same tokens"),
        (OUT_OF_VOCABULARY, "tokens are in the vocabulary"),
        (LONG_ANSWER, "questions and answers have the declared lengths"),
        (WRONG_LOSS, "a model with known probabilities gets its exact loss"),
    ],
    ids=["dataset", "protocol", "unseeded dataset", "unknown answer", "long answer", "wrong loss"],
)
def test_laws_are_tried_on_a_file(source, broken, here, forgetful_registry, capsys):
    (here / "mine.py").write_text(source)
    assert cli.main(["check", "mine.py"]) == (1 if broken else 0)
    printed = capsys.readouterr()
    if broken:
        assert broken in printed.err
        assert f"FAILED: {broken}. " in printed.out
    else:
        assert "FAILED" not in printed.out and "passes all" in printed.out


def test_an_optimizer_without_a_learning_rate_is_refused(here, forgetful_registry, capsys):
    (here / "mine.py").write_text(OPTIMIZER)
    assert cli.main(["check", "mine.py"]) == 0
    forgetful_registry.optimizers.entries.pop("signed")
    (here / "other.py").write_text(OPTIMIZER.replace("lr: float, ", "").replace('"lr": lr', '"lr": 0.1'))
    assert cli.main(["check", "other.py"]) == 2
    assert "optimizer 'signed' " in (error := capsys.readouterr().err) and "has no lr" in error
