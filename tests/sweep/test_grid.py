"""A grid: each encoding is trained with every combination, and the best by validation are compared."""

import json
import shutil
from pathlib import Path

import pytest

from zoo.comparison.caveats import of_runs
from zoo.comparison.comparable import differences, facts
from zoo.comparison.run_info import RunInfo
from zoo.errors import InputError, RunError
from zoo.recipe import read_recipe
from zoo.sweep.choice import choose, record
from zoo.sweep.grid import read_grid
from zoo.sweep.plan import plan
from zoo.sweep.sweep import Sweep

GRID = {"optimizer.lr": [0.001, 0.003], "optimizer.warmup_steps": [1, 2]}


def losses(runs, values):
    """Write the last validation loss of each run; None for a run that has not finished."""
    for run, value in zip(runs, values, strict=True):
        run.folder.mkdir(parents=True, exist_ok=True)
        (run.folder / "metrics.csv").write_text(f"step,val/loss\n1,0.0\n2,{value}\n3,\n")


def planned(tiny, encodings, seeds, grid):
    return plan(tiny, encodings, seeds, (), Path("runs"), grid)[1]


def test_every_combination_of_every_encoding_and_seed_is_a_run(tiny):
    runs = planned(tiny, ["alibi", {"name": "rope", "partial": 0.5}], (0, 1), GRID)
    cells = {
        (run.encoding, run.seed, run.recipe.optimizer.lr, run.recipe.optimizer.warmup_steps) for run in runs
    }
    assert len(cells) == len({run.folder for run in runs}) == len(runs) == 2 * 2 * 4
    assert runs[0].name == "alibi_tiny_lr-0.001_warmup_steps-1_s0"


def test_the_best_of_each_encoding_by_its_mean_over_the_seeds(tiny):
    grid = {"optimizer.lr": [0.001, 0.003]}
    runs = planned(tiny, ["alibi", "rope"], (0, 1), grid)
    order = [(run.encoding, run.seed, run.recipe.optimizer.lr) for run in runs]
    table = {
        ("alibi", 0.001): (1, 4),
        ("alibi", 0.003): (2, 2),
        ("rope", 0.001): (3, 3),
        ("rope", 0.003): (1, 9),
    }
    losses(runs, [table[encoding, lr][seed] for encoding, seed, lr in order])
    tuned, lines = choose(runs, grid, ())
    assert {encoding: one["chosen"] for encoding, one in tuned.items()} == {
        "alibi": ("optimizer.lr=0.003",), "rope": ("optimizer.lr=0.001",),
    }  # fmt: skip
    assert lines[0].startswith("alibi: optimizer.lr=0.003 is chosen")

    def recorded():
        record(runs, tuned)
        files = [((run.encoding, run.recipe.optimizer.lr), run.folder / "tuned.json") for run in runs]
        return {key: file.read_text() for key, file in files if file.is_file()}

    written = recorded()
    assert written.keys() == {("alibi", 0.003), ("rope", 0.001)}
    alibi = json.loads(written["alibi", 0.003])
    assert alibi["grid"] == grid and alibi["chosen"] == ["optimizer.lr=0.003"]
    both = {"optimizer.lr=0.001": {"0": 1, "1": 4}, "optimizer.lr=0.003": {"0": 2, "1": 2}}
    assert alibi["losses"] == both
    # Another choice takes the earlier one back; failed and diverged runs are not chosen.
    losses(runs, ["nan" if encoding == "rope" and lr == 0.001 else 1 for encoding, _, lr in order])
    failed = {run.name for run in runs if run.encoding == "alibi" and run.recipe.optimizer.lr == 0.003}
    tuned, _ = choose(runs, grid, failed)
    assert recorded().keys() == {("alibi", 0.001), ("rope", 0.003)}


@pytest.mark.parametrize(
    "text, message",
    [
        ("optimizer.lr", "not a key with several values"),
        ("optimizer.lr=1e-3", "not a key with several values"),
        ("=1,2", "not a key with several values"),
        ("optimizer.lr=[1", "not YAML"),
    ],
)
def test_a_grid_of_another_form_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        read_grid([text])


@pytest.mark.parametrize(
    "grid, sets, message",
    [
        ({"seed": [1, 2]}, (), "--grid seed: the sweep sets it: use --seeds"),
        ({"optimizer.lrr": [1, 2]}, (), "optimizer.lrr: unknown key; did you mean 'lr'"),
        ({"optimizer.lr": [1, 2]}, ("logging=[tensorboard]",), "logging: --grid reads the validation loss"),
        ({"optimizer.lr": [1, 2]}, ("trainer.limit_val_batches=0",), "limit_val_batches: --grid chooses"),
    ],
)
def test_a_grid_that_cannot_be_tried_is_refused_before_any_run(tiny, grid, sets, message):
    with pytest.raises(InputError) as caught:
        plan(tiny, ["alibi"], (0,), sets, Path("runs"), grid)
    assert message in str(caught.value)


def test_runs_that_were_tuned_by_the_same_grid_are_comparable(recipe):
    def run(path, lr, grid):
        made = recipe("max_index", f"optimizer.lr={lr}", f"model.encoding={path}").as_dict()
        return RunInfo(path, made, {}, tuned={"grid": grid})

    one, other = run("alibi", 0.001, {"optimizer.lr": [0.001, 0.003]}), run("rope", 0.003, {})
    assert any("optimizer.lr" in str(found) for found in differences([one, other]))
    same = run("rope", 0.003, {"optimizer.lr": [0.001, 0.003]})
    assert differences([one, same]) == [] and facts(one) != facts(same)
    another = run("rope", 0.003, {"optimizer.lr": [0.003, 0.01]})
    (found,) = differences([one, another])
    assert str(found).startswith("recipe optimizer.lr: the best of ")


def test_a_number_at_the_edge_of_its_grid_is_a_caveat(recipe):
    def edges(lr, values, key="optimizer.lr"):
        made = recipe("max_index", f"optimizer.lr={lr}").as_dict()
        found = of_runs([RunInfo("runs/a", made, {}, tuned={"grid": {key: values}}, speed=1.0)] * 2)
        return [text for text in found if "edge of the grid" in text]

    grid = [0.003, 0.001, 0.01]
    assert [len(edges(lr, grid)) for lr in (0.001, 0.003, 0.01)] == [1, 0, 1]
    assert "0.001" in edges(0.001, grid)[0] and edges(0.001, [True, False], "evaluate.end_tokens") == []


def test_a_sweep_compares_runs_of_the_chosen_values_with_seeds_that_did_not_choose(stub, tiny, compared):
    sweep = Sweep(tiny, ["alibi", "rope"], (1, 2), grid={"optimizer.lr": [0.003, 0.001]})
    sweep.run()  # the validation loss of the stand-in is the learning rate
    names = [f"{one}_tiny_lr-0.001_s{seed}" for seed in (1, 2) for one in ("alibi", "rope")]
    assert compared == [(names, "runs/tiny_comparison")]
    begun = [name for what, name, *_ in stub() if what == "begin"]
    assert {name[-1] for name in begun[:4]} == {"0"} and begun[4:] == names
    recipe = read_recipe(Path("runs") / names[0] / "recipe.yaml")
    assert recipe.evaluate.split == "test" and (Path("runs") / names[0] / "tuned.json").is_file()
    command = " ".join(sweep.command()).replace("'", "")
    assert "--grid optimizer.lr=0.003, 0.001 --select-seeds 0" in command
    first = Path("runs/alibi_tiny_lr-0.001_s0")
    Path("fails").write_text(first.name)
    shutil.rmtree(first / "evaluation")
    (first / "checkpoints/last.ckpt").write_text("0")  # it trains again, and fails
    with pytest.raises(RunError, match=first.name):
        sweep.run()
    assert set(compared[1][0]) == {
        name.replace("alibi_tiny_lr-0.001", "alibi_tiny_lr-0.003") for name in names
    }
    assert not (Path("runs") / names[0] / "tuned.json").exists()


def test_slurm_chooses_before_it_submits_the_reported_runs(stub, tiny, monkeypatch):
    calls = []
    monkeypatch.setattr("zoo.sweep.sweep.sbatch", lambda *options: calls.append(options) or "7")
    sweep = Sweep(tiny, ["alibi"], (1,), grid={"optimizer.lr": [0.003, 0.001]})
    sweep.submit("--time=1:00:00")
    assert "--array=1-2" in calls[0] and "--dependency=afterok:7" in calls[1]
    assert "--slurm=--time=1:00:00" in calls[1][-1]
    Sweep(tiny, ["alibi"], (0,), grid=sweep.grid, select_seeds=(0,)).run()
    sweep.submit("")
    assert "--array=1-1" in calls[2] and "--compare-only" in calls[3][-1]
