"""A run that stopped and was resumed is the run that never stopped; Ctrl-C loses nothing."""

import json
import os
import shlex
import signal
from pathlib import Path

import pytest
import torch
from killed_runs import rows_of
from run_files import assert_same, saved
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from zoo import cli
from zoo.data import open_data
from zoo.errors import InputError
from zoo.recipe import read_recipe
from zoo.recipe.diff import may_change_on_resume
from zoo.recipe.trainer import OWNED, TrainerConfig, trainer_options
from zoo.reports.fit import fit
from zoo.runs.folder import RunLock, existing_run, write_recipe
from zoo.training.module import TaskModule

pytestmark = pytest.mark.usefixtures("unmeasured")


class Cut(Exception):
    pass


@pytest.fixture
def cut(monkeypatch):
    """Fit, and break off in the training step after so many optimizer steps."""

    def cut(recipe, at, **more):
        real = TaskModule.training_step

        def breaks(self, batch, index):
            if self.global_step >= at:
                raise Cut
            return real(self, batch, index)

        with monkeypatch.context() as patch, pytest.raises(Cut):
            patch.setattr(TaskModule, "training_step", breaks)
            fit(recipe, **more)

    return cut


KINDS = {
    "text": [], "masked": [], "max_index": [],
    "drawn": ["model.encoding={name: pose, of: rope}"],
    "mixed lengths": ["data.lengths=[4, 8, 16]"],
    "scored": ["evaluate.during={every_n_steps: 2, lengths: [8, 24], max_tokens: 64, samples: 8}"],
}  # fmt: skip


@pytest.mark.parametrize("kind, at, accumulate", [
    ("text", 6, 1),  # stops two steps after a checkpoint, in the midst of an epoch
    ("masked", 6, 2), ("max_index", 5, 2), ("drawn", 6, 2), ("mixed lengths", 6, 1), ("scored", 6, 1),
])  # fmt: skip
def test_resumed_is_bitwise_uninterrupted(here, recipe, cut, kind, at, accumulate):
    recipe = recipe(
        kind if kind in ("masked", "max_index") else "text", *KINDS[kind], "model.dropout=0.1",
        "checkpoint.every_n_steps=4", "trainer.max_steps=10",
        f"trainer.accumulate_grad_batches={accumulate}",
    )  # fmt: skip
    whole = fit(recipe, out=here / "whole")
    cut(recipe, at, out=here / "cut")
    assert saved(here / "cut")["global_step"] == 4
    resumed = fit(recipe, out=here / "cut", resume=True)
    assert_same(saved(whole), saved(resumed))
    # Every logged step is there once, with the numbers of the whole run.
    assert rows_of(whole) == rows_of(resumed)
    assert json.loads((resumed / "card.json").read_text()) == json.loads((whole / "card.json").read_text())


@pytest.mark.slow
def test_resumed_at_the_end_of_an_epoch(here, recipe, cut):
    sets = ["text", "model.dropout=0.1", "data.documents=12"]
    epoch = len(open_data(recipe(*sets)).train_loader())
    made = recipe(*sets, f"checkpoint.every_n_steps={epoch}", f"trainer.max_steps={epoch + 5}")
    whole = fit(made, out=here / "whole")
    cut(made, epoch + 2, out=here / "cut")
    assert_same(saved(whole), saved(fit(made, out=here / "cut", resume=True)))


def test_a_finished_run_has_nothing_left_to_do(here, recipe):
    first = saved(fit(recipe()))
    again = fit(recipe(), resume=True)
    assert_same(first, saved(again))
    assert json.loads((again / "card.json").read_text())["finished"] is True


CONSTANT = "optimizer.schedule=constant"
WSD = ["optimizer.schedule=wsd", "optimizer.decay_fraction=0.25"]


@pytest.mark.slow
@pytest.mark.parametrize("sets, first", [
    ([CONSTANT], 5),
    (WSD, None),  # cut at step 5, the last before the rate falls in a run of 7
], ids=["constant", "wsd"])  # fmt: skip
def test_a_run_that_is_made_longer_is_the_straight_run(here, recipe, cut, sets, first):
    sets = ["model.dropout=0.1", "trainer.log_every_n_steps=1", "checkpoint.every_n_steps=5", *sets]
    whole = fit(recipe("text", *sets, "trainer.max_steps=10"), out=here / "whole")
    if first:
        fit(recipe("text", *sets, f"trainer.max_steps={first}"), out=here / "cut")
    else:
        cut(recipe("text", *sets, "trainer.max_steps=7"), 5, out=here / "cut")
    assert saved(here / "cut")["global_step"] == 5
    longer = fit(recipe("text", *sets, "trainer.max_steps=10"), out=here / "cut", resume=True)
    assert_same(saved(whole), saved(longer))
    rates = [[row["train/lr"] for row in rows_of(folder)] for folder in (whole, longer)]
    assert rates[0] == rates[1] and len(rates[0]) == 10
    assert read_recipe(longer / "recipe.yaml") == read_recipe(whole / "recipe.yaml")


@pytest.mark.slow
def test_a_run_whose_rate_has_fallen_is_not_made_longer(here, recipe):
    sets = ["optimizer.schedule=linear"]
    folder = fit(recipe("max_index", *sets))
    before = saved(folder)
    with pytest.raises(InputError) as caught:
        fit(recipe("max_index", *sets, "trainer.max_steps=12"), resume=True)
    (problem,) = caught.value.problems
    assert problem.key == "trainer.max_steps" and "has done 6 of 6 steps" in problem.message
    assert_same(before, saved(folder))
    # Both commands of the message work.
    anew, schedule = (line.partition("python -m zoo ")[2] for line in problem.message.splitlines()[1:])
    for command, steps in ((anew, 6), (schedule, 12)):
        words = shlex.split(command)
        assert cli.main([*words, "--out", str(here / str(steps))]) == 0
        assert saved(here / str(steps))["global_step"] == steps
    assert json.loads((here / "6" / "card.json").read_text())["init_from"]["steps"] == 6


@pytest.mark.slow
def test_a_stable_rate_can_be_brought_down_early(here, recipe, cut):
    cut(recipe("text", *WSD, "trainer.max_steps=100"), 5)
    shorter = fit(recipe("text", *WSD, "trainer.max_steps=8"), resume=True)
    assert_same(saved(shorter), saved(fit(recipe("text", *WSD, "trainer.max_steps=8"))))


KEPT = {
    "model.d_model": (16, 32), "optimizer.lr": (0.001, 0.5), "optimizer.final_lr": (0.1, 0.5),
    "seed": (0, 1), "trainer.precision": ("32-true", "64-true"), 
    "trainer.limit_val_batches": (4, 1), "trainer.gradient_clip_val": (1.0, 0.5),
    "trainer.min_steps": (None, 2),
    "trainer.gradient_clip_algorithm": (None, "value"), "trainer.sync_batchnorm": (None, True),
}  # fmt: skip


def test_a_resumed_run_keeps_its_recipe(here, recipe):
    folder = fit(recipe())
    before = saved(folder)
    with pytest.raises(InputError) as caught:
        fit(recipe("max_index", *(f"{key}={new}" for key, (_, new) in KEPT.items())), resume=True)
    problems = {problem.key: str(problem) for problem in caught.value.problems}
    assert problems.keys() == KEPT.keys()
    for key, (old, new) in KEPT.items():
        assert f"recipe.yaml: {key}: the run has {old!r}, the recipe now {new!r}" in problems[key]
    with pytest.raises(InputError, match=r"trainer\.max_steps: 5 is below the 6 steps"):
        fit(recipe("max_index", "trainer.max_steps=5"), resume=True)
    assert_same(before, saved(folder))


OUTPUT = [
    "data.workers=1", "data.root=elsewhere", "evaluate.lengths=[16]", "logging=[]",
    "trainer.log_every_n_steps=1", "trainer.enable_progress_bar=false", "trainer.enable_model_summary=true",
    "trainer.inference_mode=false", "trainer.profiler=simple", "trainer.detect_anomaly=true",
    "trainer.num_sanity_val_steps=2", "trainer.max_time=00:01:00:00", "trainer.limit_test_batches=1",
    "trainer.limit_predict_batches=1", "trainer.enable_autolog_hparams=false",
]  # fmt: skip
LOOKS = ["checkpoint.every_n_steps=1", "trainer.val_check_interval=2", "trainer.check_val_every_n_epoch=2"]


@pytest.mark.parametrize("changes", [OUTPUT, LOOKS], ids=["output", "intervals"])
def test_a_key_that_may_change_changes_no_weight(here, recipe, cut, changes):
    sets = "text", "model.dropout=0.1", "trainer.max_steps=7"
    whole = fit(recipe(*sets), out=here / "whole")
    cut(recipe(*sets), 5, out=here / "cut")
    resumed = fit(recipe(*sets, *changes), out=here / "cut", resume=True)
    assert_same(saved(whole), saved(resumed))
    noted = [json.loads((run / "card.json").read_text())["changed_on_resume"] for run in (whole, resumed)]
    keys = {one.partition("=")[0] for one in changes if one in LOOKS}
    assert noted[0] == [] and {(one["step"], one["key"]) for one in noted[1]} == {(4, key) for key in keys}


@pytest.mark.slow
def test_changes_of_rounding_are_in_the_card(here, recipe, cut):
    sets = ["text", "trainer.max_steps=12", "checkpoint.every_n_steps=4", "model.kernel=sdpa"]
    cut(recipe(*sets), 5)
    cut(recipe(*sets, "trainer.accumulate_grad_batches=2", "model.kernel=reference"), 9, resume=True)
    folder = fit(recipe(*sets, "trainer.accumulate_grad_batches=2"), resume=True)
    card = json.loads((folder / "card.json").read_text())
    assert card["device"] == "cpu" and card["changed_on_resume"] == [
        {"step": 4, "key": "model.kernel", "from": "sdpa", "to": "reference"},
        {"step": 4, "key": "trainer.accumulate_grad_batches", "from": 1, "to": 2},
        {"step": 8, "key": "model.kernel", "from": "reference", "to": "sdpa"},
    ]
    # It is a straight run but for rounding.
    whole = saved(fit(recipe(*sets), out=here / "whole"))["state_dict"]
    for name, value in saved(folder)["state_dict"].items():
        assert torch.allclose(value, whole[name], atol=1e-4), name


def test_every_key_of_the_trainer_may_change_on_resume_or_may_not():
    known = {*trainer_options(), *TrainerConfig.model_fields} - {*OWNED}
    may = {key for key in known if may_change_on_resume(f"trainer.{key}")}
    kept = {
        "precision", "gradient_clip_val", "gradient_clip_algorithm", "limit_val_batches",
        "min_epochs", "min_steps", "sync_batchnorm",
    }  # fmt: skip
    # max_steps may by its learning rates. A key that Lightning adds is refused until it is looked at.
    assert may | kept | {"max_steps"} == known and not may & kept


def test_nothing_to_resume(here, recipe):
    with pytest.raises(InputError, match="no run in runs/tiny"):
        fit(recipe(), resume=True)
    with pytest.raises(InputError, match="no run in mine"):
        fit(recipe(), out=Path("mine"), resume=True)


def test_a_run_that_stopped_before_its_first_checkpoint_begins_again(here, recipe, cut):
    recipe = recipe("text", "model.dropout=0.1", "trainer.log_every_n_steps=1", "logging=[csv, tensorboard]")
    whole = fit(recipe, out=here / "whole")
    cut(recipe, 3, out=here / "cut")
    assert not (here / "cut" / "checkpoints" / "last.ckpt").exists() and len(rows_of(here / "cut")) == 3
    resumed = fit(recipe, out=here / "cut", resume=True)
    assert_same(saved(whole), saved(resumed))
    assert rows_of(whole) == rows_of(resumed)
    events = EventAccumulator(str(resumed / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_resume_auto_begins_a_new_run_and_continues_one(here, recipe, cut):
    recipe = recipe("text")
    whole = fit(recipe, out=here / "whole")
    for out in (None, here / "mine"):
        cut(recipe, 5, out=out, resume="auto")
        resumed = fit(recipe, out=out, resume="auto")
        assert_same(saved(whole), saved(resumed))
        assert (here / "runs" / "tiny_text").samefile(resumed) or resumed == here / "mine"
    assert [path.name for path in (here / "runs").iterdir()] == ["tiny_text"]
    (here / "other").mkdir()
    (here / "other" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        fit(recipe, out=here / "other", resume="auto")


def test_a_run_that_has_moved_keeps_its_best_score(here, recipe, cut):
    recipe = recipe("text", "checkpoint.every_n_steps=2", "trainer.max_steps=8")
    cut(recipe, 5, out=here / "old")
    (here / "old").rename(here / "new")
    best = torch.load(here / "new" / "checkpoints" / "best.ckpt", weights_only=True)
    # As if no later step came near it.
    last = saved(here / "new")
    last["callbacks"]["best"]["best_model_score"] = torch.tensor(1e-3)
    torch.save(last, here / "new" / "checkpoints" / "last.ckpt")
    resumed = fit(recipe, out=here / "new", resume=True)
    assert_same(best, torch.load(resumed / "checkpoints" / "best.ckpt", weights_only=True))
    assert not (here / "old").exists()


def test_resume_takes_the_newest_run_of_this_very_name(here, recipe):
    names = {"tiny": "tiny", "tiny-2": "tiny", "tiny-3": "tiny-3", "tiny_4": "tiny_4", "tiny5": "tiny5"}
    for age, (folder, name) in enumerate(names.items()):
        path = here / "runs" / folder
        path.mkdir(parents=True)
        write_recipe(path, recipe("max_index", f"name={name}"))
        os.utime(path / "recipe.yaml", (1000 + age, 1000 + age))
    assert existing_run(recipe(), None)[0].name == "tiny-2"
    os.utime(here / "runs" / "tiny" / "recipe.yaml", (5000, 5000))
    assert existing_run(recipe(), None)[0].name == "tiny"


@pytest.fixture
def interrupt(monkeypatch):
    """Fit, and send this process signals in the training step after so many optimizer steps."""

    def interrupt(recipe, at, number=signal.SIGINT, times=1, **more):
        real = TaskModule.training_step

        def interrupted(self, batch, index):
            if self.global_step == at and not sent:
                sent.append(at)
                for _ in range(times):
                    os.kill(os.getpid(), number)
            return real(self, batch, index)

        before, sent = signal.getsignal(number), []
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as caught:
            patch.setattr(TaskModule, "training_step", interrupted)
            fit(recipe, **more)
        assert signal.getsignal(number) is before
        return str(caught.value)

    return interrupt


@pytest.mark.parametrize(
    "kind, at, accumulate, number",
    [
        ("text", 2, 1, signal.SIGINT),  # before the first checkpoint
        ("text", 7, 1, signal.SIGTERM),  # saved where a validation is due
        ("text", 5, 2, signal.SIGINT),  # within the parts of a step
    ],
)
def test_an_interrupted_run_goes_on_as_if_never_stopped(
    here, recipe, interrupt, kind, at, accumulate, number
):
    recipe = recipe(
        kind, "model.dropout=0.1", "trainer.max_steps=10", "trainer.log_every_n_steps=1",
        f"trainer.accumulate_grad_batches={accumulate}",
    )  # fmt: skip
    whole = fit(recipe, out=here / "whole")
    expected = interrupt(recipe, at, number, out=here / "cut")
    assert expected.startswith(f"interrupted at step {at + 1}; saved; continue: python -m zoo fit ")
    assert saved(here / "cut")["global_step"] == at + 1
    assert cli.main(shlex.split(expected.partition("continue: ")[2])[3:]) == 0
    assert_same(saved(whole), saved(here / "cut"))
    assert_same(*(torch.load(here / run / "checkpoints/best.ckpt", weights_only=True)
                  for run in ("whole", "cut")))  # fmt: skip
    assert rows_of(whole) == rows_of(here / "cut")


def test_a_second_signal_stops_at_once(here, recipe, interrupt, capfd, monkeypatch):
    expected = interrupt(recipe(), 5, times=2, out=here / "late")
    assert expected.startswith("interrupted at step 5; the last checkpoint is of step 4; continue: ")
    assert "nothing was saved" in interrupt(recipe(), 0, times=2, out=here / "early")
    assert not (here / "early").exists()
    assert "Detected" not in "".join(capfd.readouterr())
    monkeypatch.setattr("zoo.training.fit.finish", lambda *given: pytest.fail("it was evaluated"))
    assert interrupt(recipe(), 5, out=here / "last").startswith("interrupted at step 6; saved")


def test_a_run_is_trained_by_one_process_at_a_time(here, recipe):
    (here / "new").mkdir()
    held = RunLock(here / "new")  # before it has written its recipe
    with pytest.raises(InputError, match="another process is at work on this run"):
        fit(recipe(), out=here / "new")
    assert (here / "new").is_dir()
    held.release()
    folder = fit(recipe())
    before, held = saved(folder), RunLock(folder)
    with pytest.raises(InputError, match="another process is at work on this run"):
        fit(recipe(), resume=True)
    assert_same(before, saved(folder))
    held.release()
    fit(recipe(), resume=True)
