"""Files from outside the zoo, one of each kind: trained with, killed, resumed, evaluated and compared."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from plugins import KINDS

from zoo import cli, registry
from zoo.errors import InputError
from zoo.recipe import read_recipe

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stranger(here, mapping, forgetful_registry):
    """Write a plugin of a kind and a recipe with it; gives the recipe's file."""

    def stranger(kind, **changes):
        source, says, _ = KINDS[kind]
        (here / "mine.py").write_text(source)
        made = json.loads(json.dumps(mapping("text")))
        if kind == "dataset":
            made["data"] = {key: made["data"][key] for key in ("sequence_length", "batch_size")}
        made["plugins"] = ["mine.py"]
        made["trainer"] |= {"max_steps": 300, "limit_val_batches": 2}
        made["checkpoint"] = {"every_n_steps": 10}
        made["evaluate"] = {"max_tokens": 256, "samples": 16, "lengths": [16, 32]}
        for section, values in says.items():
            made[section] = {**made.get(section, {}), **values}
        del made["name"]
        (here / "mine.yaml").write_text(yaml.safe_dump({**made, **changes}))
        return "mine.yaml"

    return stranger


def zoo_process(*arguments, **variables):
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "LOCAL_RANK")}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **variables}
    return subprocess.Popen(
        [sys.executable, "-m", "zoo", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip


def run_to_end(*arguments, **variables):
    process = zoo_process(*arguments, **variables)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    return out


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_trained_killed_resumed_bitwise_evaluated_and_compared(kind, stranger, here, capsys):
    file = stranger(kind)
    process = zoo_process("fit", "--recipe", file, "--out", "killed")
    last = here / "killed" / "checkpoints" / "last.ckpt"
    limit = time.monotonic() + 120
    while not last.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL and last.exists()
    run_to_end("fit", "--recipe", file, "--out", "killed", "--resume")
    run_to_end("fit", "--recipe", file, "--out", "unbroken")
    ends = [torch.load(here / run / "checkpoints" / "last.ckpt") for run in ("killed", "unbroken")]
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        assert_equal(*(end[part] for end in ends))

    plugins = ["--set", "plugins=[mine.py]"]
    assert cli.main(["evaluate", "unbroken", "--lengths", "16,48"]) == 2
    assert "plugins=[" in capsys.readouterr().err
    assert cli.main(["evaluate", "unbroken", "--lengths", "16,48", *plugins]) == 0
    run_to_end("compare", "killed", "unbroken", "--force")  # they are the same run twice
    (source,) = json.loads((here / "killed" / "card.json").read_text())["code_source"]
    assert source["kind"] == kind and source["file"].endswith("mine.py")


def assert_equal(one, other):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    else:
        assert one == other


@pytest.mark.parametrize("kind", KINDS)
def test_its_options_are_checked_with_their_location(kind, stranger, here):
    key = KINDS[kind][2]
    file = stranger(kind)
    for setting in (f"{key}=wide", f"{key}s=3"):
        with pytest.raises(InputError) as caught:
            read_recipe(file, [setting])
        (problem,) = caught.value.problems
        assert problem.key == setting.partition("=")[0] and problem.where == f"--set {setting}"
    assert "mine.py" in str(registry.KINDS[kind].describe(next(iter(registry.KINDS[kind].added))).file)
    assert "torch" in sys.modules and not registry.KINDS[kind].classes.keys() & registry.KINDS[kind].added


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_listed_with_its_origin(kind, stranger, capsys):
    read_recipe(stranger(kind))
    assert cli.main(["list", f"{kind}s"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "mine.py" in line]
    assert line.split()[0] in registry.KINDS[kind].added


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_installed_package_brings_one_too(kind, stranger, here):
    file, site = here / stranger(kind, plugins=[]), here / "site"
    package, info = site / "theirs", site / "theirs-1.2.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('not run by listing')")
    (package / "own.py").write_text(KINDS[kind][0])
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[zoo.{kind}s]\nown = theirs.own\n")
    path = f"{site}{os.pathsep}{ROOT}"
    assert "theirs 1.2" in run_to_end("list", f"{kind}s", PYTHONPATH=path)
    (package / "__init__.py").write_text("")
    sets = ["--set", "trainer.max_steps=4", "--set", "plugins=[]"]
    run_to_end("fit", "--recipe", str(file), "--out", "installed", *sets, PYTHONPATH=path)
    run_to_end("evaluate", "installed", "--lengths", "16", PYTHONPATH=path)
    (source,) = json.loads((here / "installed" / "card.json").read_text())["code_source"]
    assert (source["kind"], source["package"], source["version"]) == (kind, "theirs", "1.2")


@pytest.mark.parametrize("kind", KINDS)
def test_it_cannot_take_a_name_of_the_zoo(kind, here, forgetful_registry):
    source = KINDS[kind][0]
    taken = next(iter(registry.KINDS[kind].shipped))
    own = re.search(rf'register\.{kind}\("(\w+)"\)', source)[1]
    (here / "mine.py").write_text(source.replace(f'("{own}")', f'("{taken}")'))
    with pytest.raises(InputError, match=f"the name {taken!r} is taken by"):
        registry.read_plugin(here / "mine.py")
