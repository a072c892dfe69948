"""One run for each GPU, or a share of the cores; the user's own choice stands."""

import pytest

from zoo.launch.devices import cpu_cores
from zoo.sweep.processes import environments, visible_gpus


@pytest.fixture
def placed(recipe, monkeypatch):
    """The GPUs of each place, and the threads."""

    def placed(*sets, gpus=("0", "1", "2", "3"), jobs=None, most=100, threads=None):
        trainer = recipe("max_index", "trainer.accelerator=auto", "data.batch_size=24", *sets).trainer
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if threads:
            monkeypatch.setenv("OMP_NUM_THREADS", threads)
        made = environments(trainer, jobs, most, gpus)
        return [one.get("CUDA_VISIBLE_DEVICES") for one in made], {one.get("OMP_NUM_THREADS") for one in made}

    return placed


@pytest.mark.parametrize("sets, options, gpus", [
    ([], {}, ["0", "1", "2", "3"]),
    ([], {"jobs": 6}, ["0", "1", "2", "3", "0", "1"]),
    ([], {"gpus": [], "jobs": 3}, [None, None, None]),
    (["trainer.devices=2"], {}, ["0,1", "2,3"]),
    (["trainer.devices=[2, 3]"], {}, [None]),
    (["trainer.devices=-1"], {}, ["0", "1", "2", "3"]),
    (["trainer.accelerator=cpu"], {}, [None]),
])  # fmt: skip
def test_each_run_has_gpus_of_its_own(placed, sets, options, gpus):
    assert placed(*sets, **options)[0] == gpus


def test_runs_at_the_same_time_share_the_cores(placed):
    assert placed(gpus=[], jobs=2)[1] == {str(max(1, cpu_cores() // 2))}
    assert placed(gpus=[], jobs=1)[1] == placed(gpus=[], jobs=2, threads="3")[1] == {None}


def test_visible_gpus_are_named_as_the_user_names_them(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    for named in ("GPU-aa, GPU-bb", "GPU-aa,GPU-bb,-1,3"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        assert visible_gpus() == ["GPU-aa", "GPU-bb"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []
