"""`zoo.load` returns the trained model, and runs no code of a file."""

import functools

import pytest
import torch

import zoo
from zoo.errors import InputError
from zoo.reports.fit import fit
from zoo.runs.load import find_checkpoint


@pytest.fixture
def trained(here, recipe, monkeypatch, unmeasured):
    """Fit; gives the folder and the model that was trained."""

    def trained(*given, **more):
        seen = []
        import lightning.pytorch as pl

        real = pl.Trainer.fit

        def fit_and_keep(self, task, *rest, **named):
            seen.append(task)
            return real(self, task, *rest, **named)

        monkeypatch.setattr(pl.Trainer, "fit", fit_and_keep)
        folder = fit(recipe(*given), **more)
        return folder, seen[0].model.eval()

    return trained


@pytest.mark.parametrize("kind", ["max_index", "text", "masked"])
def test_the_loaded_model_is_the_trained_one(trained, kind):
    folder, model = trained(kind, "model.dropout=0.1")
    tokens = torch.randint(1, 19, (2, 8))
    for path in (folder, str(folder), folder / "checkpoints" / "last.ckpt"):
        loaded = zoo.load(path)
        assert not loaded.training
        assert torch.equal(loaded(tokens), model(tokens))


def test_a_checkpoint_can_be_taken_out_of_its_folder(run_copy, tmp_path):
    tokens = torch.ones(1, 5, dtype=torch.long)
    expected = zoo.load(run_copy)(tokens)
    moved = tmp_path / "elsewhere.ckpt"
    (run_copy / "checkpoints" / "last.ckpt").rename(moved)
    assert torch.equal(zoo.load(moved)(tokens), expected)


@pytest.mark.slow
def test_a_compiled_run_loads_without_a_trace(trained, monkeypatch):
    # Without the C++ compiler, which takes most of a minute.
    compile_eagerly = functools.partialmethod(torch.nn.Module.compile, backend="eager")
    monkeypatch.setattr(torch.nn.Module, "compile", compile_eagerly)
    folder, model = trained("text", "compile=true")
    content = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert not [key for key in content["state_dict"] if "_orig_mod" in key]
    tokens = torch.randint(0, 300, (2, 16))
    assert torch.allclose(zoo.load(folder)(tokens), model(tokens), atol=1e-5)


def test_a_file_that_is_not_a_checkpoint_is_wrong_input(tmp_path):
    (tmp_path / "bad").write_bytes(b"")
    torch.save(torch.ones(2), tmp_path / "tensor")
    for bad in (tmp_path / "bad", tmp_path / "tensor"):
        with pytest.raises(InputError, match="not a checkpoint of the zoo"):
            zoo.load(bad)
    for missing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(InputError, match=r"no such run|no checkpoint in it"):
            zoo.load(missing)


def test_a_device_that_is_not_there_is_wrong_input(run_copy):
    folder = run_copy
    for device in ("nosuch", "cuda:99"):
        with pytest.raises(InputError, match=f"device '{device}' cannot be used here"):
            zoo.load(folder, device=device)


def test_a_folder_of_runs_names_them(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "checkpoints" / "last.ckpt").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=f"the runs in it: {tmp_path}/one, {tmp_path}/two$"):
        find_checkpoint(tmp_path)
