"""Two processes train what one does."""

import csv
import json

import pytest

DDP = ["trainer.devices=2", "trainer.strategy=ddp"]


def settings(*sets):
    return [part for text in sets for part in ("--set", text)]


def losses(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [(int(r["step"]), float(r["train/loss"] or "nan"), float(r["val/loss"] or "nan")) for r in rows]


def assert_same_losses(one, two):
    assert [step for step, *_ in one] == [step for step, *_ in two] and len(one) > 5
    for left, right in zip(one, two, strict=True):
        assert left == pytest.approx(right, rel=1e-5, nan_ok=True)


STEPS = ["trainer.max_steps=20", "checkpoint.every_n_steps=8", "trainer.limit_val_batches=null"]


@pytest.mark.parametrize(
    "kind, more",
    [
        ("text", []),
        pytest.param("text", ["trainer.accumulate_grad_batches=2"], marks=pytest.mark.slow),
        pytest.param("masked", ["data.batch_size=8"], marks=pytest.mark.slow),
        pytest.param("max_index", [], marks=pytest.mark.slow),
    ],
)
def test_two_processes_see_the_losses_of_one(zoo_command, here, kind, more):
    fit = ["fit", "--recipe", f"{kind}.yaml"]
    one = zoo_command(*fit, "--out", "one", *settings(*STEPS, *more))
    assert one.returncode == 0, one.stderr
    two = zoo_command(*fit, *settings(*STEPS, *more, *DDP))
    assert two.returncode == 0, two.stderr
    assert two.stderr == ""
    assert [path.name for path in (here / "runs").iterdir()] == [kind]
    assert_same_losses(losses(here / "one"), losses(here / "runs" / kind))
    for word in ("training ", "done: ", "look further: "):
        assert two.stdout.count(f"\n{word}") + two.stdout.startswith(word) == 1
    measure = "accuracy" if kind == "max_index" else "loss_nats"
    results = [
        [row[measure] for row in json.loads((folder / "evaluation" / "lengths.json").read_text())]
        for folder in (here / "one", here / "runs" / kind)
    ]
    assert results[0] == pytest.approx(results[1], rel=1e-4)


@pytest.mark.slow
def test_two_processes_resume(zoo_command, here):
    fit = ["fit", "--recipe", "text.yaml", *settings(*STEPS, *DDP, "optimizer.schedule=constant")]
    whole = zoo_command(*fit, "--out", "whole")
    assert whole.returncode == 0, whole.stderr
    # Stopped after 10 steps, then made longer.
    assert zoo_command(*fit, "--out", "cut", *settings("trainer.max_steps=10")).returncode == 0
    resumed = zoo_command(*fit, "--out", "cut", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert_same_losses(losses(here / "whole"), losses(here / "cut"))


@pytest.mark.slow
def test_torchrun_gives_every_launch_one_folder(zoo_command, here):
    launcher = ("-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "zoo")
    for _ in range(2):
        done = zoo_command("fit", "--recipe", "max_index.yaml", *settings(*DDP), launcher=launcher)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("done: ") == 1
    assert sorted(path.name for path in (here / "runs").iterdir()) == ["max_index", "max_index-2"]


def test_a_batch_that_two_cannot_share_is_wrong_input(recipe):
    from zoo.errors import InputError

    with pytest.raises(InputError, match=r"data\.batch_size"):
        recipe("text", *DDP, "data.batch_size=3")


@pytest.mark.slow
def test_a_batch_that_the_devices_found_cannot_share_is_wrong_input(zoo_command, here):
    sets = settings("trainer.devices='2'", "trainer.strategy=ddp", "data.batch_size=3")
    done = zoo_command("fit", "--recipe", "max_index.yaml", *sets)
    assert done.returncode == 2, done.stderr
    assert "data.batch_size" in done.stderr and "Traceback" not in done.stderr
    assert not [*here.glob("runs/*")]
