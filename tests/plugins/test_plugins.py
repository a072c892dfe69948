"""Plugins of each kind, from files and from a package: trained, killed, resumed, evaluated and compared."""

import json
import signal
from pathlib import Path

import pytest
import torch
import yaml
from examples import KINDS
from killed_runs import kill_group, saved_step
from torch.utils._pytree import tree_flatten

from zoo import cli, registry
from zoo.errors import InputError
from zoo.recipe import read_recipe

RECIPES = {"examples": ["dataset", "optimizer", "schedule"], "text": ["task", "protocol"]}
"""The kinds of plugin in a recipe: every kind is in one of two."""


@pytest.fixture
def with_plugins(here, mapping, forgetful_registry):
    """Write a file for each kind of plugin, and a recipe with all of them; gives the recipe's file."""

    def with_plugins(kinds, **changes):
        made = json.loads(json.dumps(mapping("text")))
        if "dataset" in kinds:
            made["data"] = {key: made["data"][key] for key in ("sequence_length", "batch_size")}
        made["plugins"] = [f"{kind}.py" for kind in kinds]
        made["trainer"] |= {"max_steps": 20, "limit_val_batches": 2}
        made["checkpoint"] = {"every_n_steps": 10}
        made["evaluate"] = {"max_tokens": 256, "samples": 16, "lengths": [16, 33]}
        for kind in kinds:
            source, sections, _ = KINDS[kind]
            (here / f"{kind}.py").write_text(source)
            for section, values in sections.items():
                made[section] = {**made.get(section, {}), **values}
        del made["name"]
        (here / "mine.yaml").write_text(yaml.safe_dump({**made, **changes}))
        return "mine.yaml"

    return with_plugins


def same(one, other):
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("kinds", RECIPES.values(), ids=RECIPES)
def test_a_run_with_plugins_is_killed_resumed_bitwise_evaluated_and_compared(
    kinds, with_plugins, here, forks, capsys
):
    fit = ["fit", "--recipe", with_plugins(kinds), "--out"]
    pids = forks.start([*fit, "killed"], here, here / "killed.log", halt=["step", 14])
    forks.wait_for_halt(pids, here / "killed.log")
    kill_group(pids[0])
    assert forks.wait(pids) == [-signal.SIGKILL]
    assert saved_step(here / "killed") == 10
    forks.run([*fit, "killed", "--resume"], here, "resumed")
    forks.run([*fit, "unbroken"], here, "unbroken")
    ends = [torch.load(here / run / "checkpoints" / "last.ckpt") for run in ("killed", "unbroken")]
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        (killed, structure), (unbroken, other) = (tree_flatten(end[part]) for end in ends)
        assert structure == other
        assert all(map(same, killed, unbroken)), part

    assert cli.main(["evaluate", "unbroken", "--lengths", "16,49"]) == 2
    assert "plugins=[" in capsys.readouterr().err
    plugins = ["--set", f"plugins=[{', '.join(f'{kind}.py' for kind in kinds)}]"]
    assert cli.main(["evaluate", "unbroken", "--lengths", "16,49", *plugins]) == 0
    assert cli.main(["compare", "killed", "unbroken", "--force"]) == 0  # they are the same run twice
    sources = json.loads((here / "killed" / "card.json").read_text())["code_source"]
    assert {(source["kind"], Path(source["file"]).name) for source in sources} == {
        (kind, f"{kind}.py") for kind in kinds
    }


def test_an_installed_package_brings_every_kind_of_plugin(with_plugins, here, forks):
    site = here / "site"
    package, info = site / "theirs", site / "theirs-1.2.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("")
    entry_points = ""
    for kind, (source, _, _) in KINDS.items():
        (package / f"{kind}.py").write_text(source)
        entry_points += f"[zoo.{kind}s]\nown = theirs.{kind}\n"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)
    (here / "install.py").write_text(
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        # The process that forks has looked for every kind, where this package is not.
        "from zoo.registry import KINDS\nfor kind in KINDS.values(): kind._installed_imported = False"
    )

    def run(log, *arguments):
        return forks.run(arguments, here, log, patch=here / "install.py")

    assert "theirs 1.2" in run("list", "list", "datasets")
    for name, kinds in RECIPES.items():
        file = with_plugins(kinds, plugins=[])
        run(f"{name}_fit", "fit", "--recipe", file, "--out", name, "--set", "trainer.max_steps=4")
        run(f"{name}_evaluate", "evaluate", name, "--lengths", "16")
        sources = json.loads((here / name / "card.json").read_text())["code_source"]
        assert {source["kind"] for source in sources} == set(kinds)
        assert {(source["package"], source["version"]) for source in sources} == {("theirs", "1.2")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_is_listed_with_its_file_and_its_options_are_checked(kind, with_plugins, capsys):
    key, file = KINDS[kind][2], with_plugins([kind])
    for setting in (f"{key}=wide", f"{key}s=3"):
        with pytest.raises(InputError) as caught:
            read_recipe(file, [setting])
        (problem,) = caught.value.problems
        assert problem.key == setting.partition("=")[0] and problem.where == f"--set {setting}"
    read_recipe(file)
    assert cli.main(["list", f"{kind}s"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if f"{kind}.py" in line]
    assert line.split()[0] in registry.KINDS[kind].names()
