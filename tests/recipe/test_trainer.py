"""`trainer` accepts every flag of Lightning's Trainer, read from its source without an import."""

import inspect

import pytest

from zoo.recipe import resolve
from zoo.recipe.trainer import OWNED, TrainerConfig, trainer_options


def test_the_signature_read_is_the_signature_run():
    trainer = pytest.importorskip("lightning.pytorch").Trainer
    parameters = inspect.signature(trainer.__init__).parameters
    options = trainer_options()
    assert list(options) == [name for name in parameters if name != "self"]
    assert {name: option.default for name, option in options.items()} == {
        name: parameter.default for name, parameter in parameters.items() if name != "self"
    }


def test_every_flag_that_the_zoo_names_exists_in_lightning():
    own = {"context_parallel"}
    assert {*OWNED, *TrainerConfig.model_fields} - own <= trainer_options().keys()
    assert not OWNED.keys() & TrainerConfig.model_fields.keys()


def test_flags_that_the_zoo_sets_itself_are_rejected_with_the_reason(good, problems):
    for flag, reason in OWNED.items():
        (line,) = problems(resolve, good, [f"trainer.{flag}=true"])
        assert f"trainer.{flag}: cannot be set in a recipe: {reason}" in line


def test_other_flags_are_checked_by_their_type(good, problems):
    recipe = resolve(
        good, ["trainer.detect_anomaly=true", "trainer.max_time=00:01:00:00", "trainer.profiler=simple"]
    )
    assert recipe.trainer.flags()["detect_anomaly"] is True
    assert recipe.trainer.flags()["max_time"] == "00:01:00:00"
    for wrong in ("detect_anomaly=maybe", "profiler=3", "limit_test_batches=all", "min_steps=1.5"):
        (line,) = problems(resolve, good, [f"trainer.{wrong}"])
        assert "must be" in line
