"""Weights & Biases and MLflow, on this machine: they have the values of metrics.csv."""

import pytest

import zoo

WANDB = "wandb={entity: team, project: long, group: g, tags: [a, b], notes: no dropout}"
LOGGED = ["trainer.log_every_n_steps=2", "optimizer.schedule=constant"]


@pytest.fixture
def mlflow_client(here, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # MLflow sets it for the process; removed after the test
    tracking = pytest.importorskip("mlflow.tracking")
    return lambda folder: tracking.MlflowClient((folder / "mlflow").absolute().as_uri())


@pytest.mark.slow  # MLflow takes seconds to import
def test_a_resumed_run_goes_on_in_its_run_of_mlflow(here, recipe, mlflow_client, unmeasured):
    out = here / "it's a run"  # in MLflow's filters a quote ends a text
    for steps in (4, 6):
        wanted = recipe("max_index", *LOGGED, "logging=[csv, mlflow]", f"trainer.max_steps={steps}")
        run = zoo.fit(wanted, out=out, resume="auto")
    client = mlflow_client(out)
    (experiment,) = [one for one in client.search_experiments() if one.name == "positional-encoding-zoo"]
    (kept,) = client.search_runs([experiment.experiment_id])
    assert kept.info.run_name == "tiny" and kept.info.status == "FINISHED"
    assert kept.data.params["recipe/model/encoding/name"] == "alibi"
    for name in ("train/loss", "val/loss"):
        points = {one.step: one.value for one in client.get_metric_history(kept.info.run_id, name)}
        assert points == pytest.approx(run.curves[name].dropna().to_dict(), rel=1e-6)
    assert [*points] and run.curves.index.tolist() == [2, 4, 6]
    assert [path.name for path in here.iterdir()] == ["it's a run"]


@pytest.mark.slow
def test_each_of_two_runs_logs_to_mlflow_in_its_own_folder(here, recipe, mlflow_client, unmeasured):
    for name in ("one", "two"):
        zoo.fit(recipe("max_index", *LOGGED, f"name={name}", "logging=[mlflow]"), out=here / name)
        client = mlflow_client(here / name)
        (kept,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
        assert kept.info.run_name == name


@pytest.mark.slow
@pytest.mark.launch  # wandb starts a process of its own
def test_runs_of_weights_and_biases_are_apart_and_resumed_ones_are_one(here, recipe, monkeypatch, unmeasured):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    place = {"entity": "team", "project": "long", "group": "g", "tags": ("a", "b"), "notes": "no dropout"}
    started, init = [], wandb.init
    monkeypatch.setattr(wandb, "init", lambda **given: started.append(given) or init(**given))

    def fit(name, steps):
        sets = ["logging=[wandb]", f"trainer.max_steps={steps}", WANDB]
        zoo.fit(recipe("max_index", *LOGGED, *sets), out=here / name, resume="auto")
        assert wandb.run is None
        kept = [one for one in (here / name / "wandb").iterdir() if "-run-" in one.name]
        assert all([*one.glob("*.wandb")] for one in kept)
        return [one.name.rsplit("-", 1)[1] for one in kept]

    (first,) = fit("one", 4)
    (second,) = fit("two", 4)
    assert first != second
    assert fit("one", 6) == [first, first]
    assert all(place.items() <= given.items() for given in started) and len(started) == 3
