"""The check of a GPU: its items run on a CPU at small sizes, and a failure is reported with its command."""

import importlib
import json
import sys

import pytest

ITEMS = ["kernels/alibi", "decoding/t5", "recompilation/alibi", "laws/none", "run/nan", "training/none"]


@pytest.mark.slow
@pytest.mark.launch
def test_items_of_each_part_pass_on_a_cpu(script, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    arguments = ["--device", "cpu", "--out", str(tmp_path / "cpu"), "--only", ",".join(ITEMS), "--jobs", "2"]
    assert script.main(arguments) == 0
    results = json.loads((tmp_path / "cpu.json").read_text())["results"]
    assert {one["item"]: one["result"] for one in results} == dict.fromkeys(ITEMS, "passed")
    numbers = {one["item"]: one["numbers"] for one in results}
    assert 0 < numbers["kernels/alibi"]["fp32_worst"] < 1e-4
    assert numbers["recompilation/alibi"]["lengths"] == 12 > numbers["recompilation/alibi"]["graphs"] > 0
    assert numbers["training/none"]["tokens_per_s"] > 0
    assert all(f"| {item} | passed |" in (tmp_path / "cpu.md").read_text() for item in ITEMS)


@pytest.fixture
def script():
    names = ("gpu_check", "benchmark_peers", "peers")
    yield importlib.import_module(names[0])
    for name in [name for name in sys.modules if name.split(".")[0] in names]:
        del sys.modules[name]  # it registers a dataset, which the registry forgets after the test


@pytest.mark.parametrize(("part", "code"), [("laws", 1), ("training", 0)])
def test_a_failed_item_has_its_command_and_decides_the_exit_code(part, code, script, tmp_path, monkeypatch):
    """Speed does not decide it. The table keeps the rows of earlier calls."""

    def wrong(name, options):
        if name == "rope":
            raise RuntimeError(f"a fault in {name}")
        return {"tokens_per_s": 8 if name == "none" else 6}

    def here(items, options, ends, finished):
        for item in items:
            finished(script.try_item(item, options))

    monkeypatch.setitem(script.PARTS, part, wrong)
    monkeypatch.setattr(script, "in_processes", here)
    arguments = ["--device", "cpu", "--out", str(tmp_path / "out"), "--only"]
    assert script.main([*arguments, f"{part}/none,{part}/t5"]) == 0
    assert script.main([*arguments, f"{part}/rope"]) == code
    table = (tmp_path / "out.md").read_text()
    assert (f"| {part}/t5 | passed |" in table) and ("of_none 0.75" in table) == (part == "training")
    assert f"| {part}/rope | failed |" in table and "RuntimeError: a fault in rope" in table
    assert f"`python scripts/gpu_check.py --device cpu --only {part}/rope`" in table


def test_a_kernel_that_differs_from_the_reference_fails(script, monkeypatch):
    """Here by a window that is one token too narrow."""
    attend = script.choose.attend

    def narrower(*of):
        scores = of[3]
        if of[5] == "auto" and scores.context.window is not None:
            contexts = [script.replace(context, window=context.window - 1) for context in scores.contexts]
            scores = type(scores)(scores.layer, contexts, scores.content)
        return attend(*of[:3], scores, *of[4:])

    monkeypatch.setattr("zoo.models.plans.choose.attend", narrower)
    monkeypatch.setattr(script, "CASES", [(1, "window", False, "fp32"), (1, "window", False, "bf16")])
    with pytest.raises(script.Failed, match="window, fp32: error"):
        script.kernels("rope", script.argparse.Namespace(device="cpu"))
