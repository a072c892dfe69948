"""One run for each GPU, or a share of the cores; the user's own choice stands."""

import pytest

from zoo.launch.children import cpu_cores
from zoo.sweep.gpus import environments, listed_gpus, visible_gpus

LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)
  MIG 3g.20gb     Device  0: (UUID: MIG-b0)
  MIG 3g.20gb     Device  1: (UUID: MIG-b1)
GPU 2: NVIDIA H200 (UUID: GPU-cc)
"""


@pytest.fixture
def placed(recipe):
    """The GPUs of each place, and the threads."""

    def placed(*sets, visible="0,1,2,3", jobs=None, most=100, **environment):
        trainer = recipe("max_index", "trainer.accelerator=auto", "data.batch_size=24", *sets).trainer
        made = environments(trainer, jobs, most, {"CUDA_VISIBLE_DEVICES": visible, **environment})
        return [one.get("CUDA_VISIBLE_DEVICES") for one in made], {one.get("OMP_NUM_THREADS") for one in made}

    return placed


@pytest.mark.parametrize("sets, options, gpus", [
    ([], {}, ["0", "1", "2", "3"]),
    ([], {"most": 2}, ["0", "1"]),
    ([], {"jobs": 6}, ["0", "1", "2", "3", "0", "1"]),
    ([], {"visible": "GPU-aa, GPU-bb"}, ["GPU-aa", "GPU-bb"]),
    ([], {"visible": "2,-1,3"}, ["2"]),
    ([], {"visible": ""}, [None]),
    ([], {"visible": "", "jobs": 3}, [None, None, None]),
    (["trainer.devices=2"], {}, ["0,1", "2,3"]),
    (["trainer.devices=3"], {}, ["0,1,2"]),
    (["trainer.devices=8"], {}, [None]),
    (["trainer.devices=[2, 3]"], {}, [None]),
    (["trainer.devices=auto"], {}, ["0", "1", "2", "3"]),
    (["trainer.devices=-1"], {}, ["0", "1", "2", "3"]),
    (["trainer.accelerator=cpu"], {}, [None]),
])  # fmt: skip
def test_each_run_has_gpus_of_its_own(placed, sets, options, gpus):
    assert placed(*sets, **options)[0] == gpus


def test_runs_at_the_same_time_share_the_cores(placed):
    assert placed(visible="", jobs=2)[1] == {str(max(1, cpu_cores() // 2))}
    assert placed(visible="", jobs=1)[1] == placed(visible="", jobs=2, OMP_NUM_THREADS="3")[1] == {None}


def test_gpus_are_asked_of_the_driver(tmp_path, monkeypatch):
    assert listed_gpus(LISTED) == ["GPU-aa", "MIG-b0", "MIG-b1", "GPU-cc"]
    driver = tmp_path / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTED}END\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert visible_gpus({}) == listed_gpus(LISTED)
    driver.write_text("#!/bin/sh\nexit 9\n")
    assert visible_gpus({}) == []
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert visible_gpus({}) == []
