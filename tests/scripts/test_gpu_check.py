"""The check of a GPU: its items run on a CPU at small sizes, and a fault in a kernel fails one of them."""

import json

import pytest
import torch

import gpu_check

FAULT = """
from zoo.models.plans import choose

attend = choose.attend

def wrong(*of):
    return attend(*of) * (1.03 if of[5] == "auto" else 1)

choose.attend = wrong
"""


@pytest.mark.slow
@pytest.mark.launch
def test_items_pass_on_a_cpu_and_a_kernel_that_differs_fails(tmp_path, monkeypatch):
    (tmp_path / "fault.py").write_text(FAULT)
    for name, value in {"PYTHONPATH": tmp_path, "PYTEST_PLUGINS": "fault", "OMP_NUM_THREADS": 1}.items():
        monkeypatch.setenv(name, str(value))
    expected = {"environment": "passed", "training/none": "passed", "kernels/rope": "failed"}
    arguments = ["--device", "cpu", "--jobs", "1", "--minutes", "9", "--out", str(tmp_path / "new" / "cpu")]
    assert gpu_check.main([*arguments, "--only", ",".join(expected)]) == 1
    rows = {row["item"]: row for row in json.loads((tmp_path / "new" / "cpu.json").read_text())["results"]}
    assert {item: row["result"] for item, row in rows.items()} == expected
    assert rows["training/none"]["numbers"]["tokens_per_s"] > 0
    assert "every kernel equals the reference: auto, plain" in rows["kernels/rope"]["message"]
    table = (tmp_path / "new" / "cpu.md").read_text()
    assert all(f"| {item} | {result} |" in table for item, result in expected.items())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_stops(capsys):
    with pytest.raises(SystemExit, match="2"):
        gpu_check.main(["--part", "1"])
    assert "there is no GPU here that PyTorch can use" in capsys.readouterr().err
