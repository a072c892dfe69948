"""A grid: each encoding is trained with every combination, and the best by validation are compared."""

import json

from zoo import cli
from zoo.comparison.caveats import of_runs
from zoo.comparison.comparable import differences, facts
from zoo.comparison.run_info import RunInfo
from zoo.sweep.choice import choose, record

GRID = ["sweep", "tiny.yaml", "--encodings", "alibi,rope", "--grid", "optimizer.lr=0.003,0.001"]


def losses(runs, values):
    """Write the last validation loss of each run."""
    for run, value in zip(runs, values, strict=True):
        run.folder.mkdir(parents=True, exist_ok=True)
        (run.folder / "metrics.csv").write_text(f"step,val/loss\n1,0.0\n2,{value}\n3,\n")


def test_the_best_of_each_encoding_by_its_mean_over_the_seeds(planned):
    grid = {"optimizer.lr": [0.001, 0.003]}
    runs = planned("alibi,rope", (0, 1), grid=["optimizer.lr=0.001,0.003"])
    order = [(run.encoding, run.seed, run.recipe.optimizer.lr) for run in runs]
    table = {
        ("alibi", 0.001): (1, 4),
        ("alibi", 0.003): (2, 2),
        ("rope", 0.001): (3, 3),
        ("rope", 0.003): (1, 9),
    }
    losses(runs, [table[encoding, lr][seed] for encoding, seed, lr in order])
    tuned = choose(runs, ())
    assert {encoding: one["chosen"] for encoding, one in tuned.items()} == {
        "alibi": ("optimizer.lr=0.003",), "rope": ("optimizer.lr=0.001",),
    }  # fmt: skip

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
    tuned = choose(runs, failed)
    assert recorded().keys() == {("alibi", 0.001), ("rope", 0.003)}


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


def test_a_sweep_compares_runs_of_the_chosen_values_with_seeds_that_did_not_choose(untrained, here):
    begun, fails, compared = untrained
    assert cli.main([*GRID, "--seeds", "1,2"]) == 0
    names = [f"{one}_tiny_lr-0.001_s{seed}" for seed in (1, 2) for one in ("alibi", "rope")]
    assert compared == [names]
    assert {name[-1] for name in begun[:4]} == {"0"} and begun[4:] == names
    assert (here / "runs" / names[0] / "tuned.json").is_file()
    # Another choice, by a run that fails.
    (here / "runs/alibi_tiny_lr-0.001_s0/metrics.csv").unlink()
    (here / "runs/alibi_tiny_lr-0.001_s0").rmdir()
    fails.add("alibi_tiny_lr-0.001_s0")
    assert cli.main([*GRID, "--seeds", "1,2"]) == 1
    assert {*compared[1]} == {name.replace("alibi_tiny_lr-0.001", "alibi_tiny_lr-0.003") for name in names}
    assert not (here / "runs" / names[0] / "tuned.json").exists()


def test_slurm_chooses_before_it_submits_the_reported_runs(untrained, cluster):
    assert cli.main([*GRID, "--seeds", "1", "--slurm=--time=1:00:00"]) == 0
    array, then = cluster()
    assert "--array=1-4" in array and "--dependency=afterok:100" in then
    assert then[-1].endswith("--seeds 1 --slurm=--time=1:00:00")
    assert cli.main([*GRID, "--seeds", "0", "--select-seeds", "0"]) == 0  # the runs that choose
    assert cli.main([*GRID, "--seeds", "1", "--slurm"]) == 0
    array, then = cluster()[2:]
    assert "--array=1-2" in array and then[-1].endswith("--seeds 1 --compare-only")
