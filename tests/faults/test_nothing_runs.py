"""A plugin runs where the user names it, and nowhere else; no path in a recipe leads out of its run."""

import json
import os
from pathlib import Path

import pytest
import yaml
from run_files import settings

import zoo
from zoo import cli, registry
from zoo.errors import InputError

PLUGIN = """\
import pathlib
import torch
import zoo

pathlib.Path(__file__).with_suffix(".ran").touch()


@zoo.register("noted")
class Noted(zoo.Encoding):
    def __init__(self, size: zoo.Size, *, slope: float = 0.5):
        super().__init__(size)
        self.slope = torch.nn.Parameter(torch.full((size.num_heads,), slope))

    def bias(self, head, q, k):
        return -self.slope[head] * (q - k).abs()
"""


class Watched:
    """The plugin's file, and whether it has run since it was last asked."""

    def __init__(self, folder):
        self.file = folder / "plugin" / "noted.py"
        self.file.parent.mkdir()
        self.file.write_text(PLUGIN)
        self.mark = self.file.with_suffix(".ran")

    def has_run(self):
        ran = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        self.forget()
        return ran

    def forget(self):
        """As in a new process, which knows of no plugin."""
        registry.encodings.entries.pop("noted", None)


@pytest.fixture
def plugin(here, forgetful_registry):
    watched = Watched(here)
    yield watched
    watched.forget()


@pytest.fixture
def recipe_file(here, plugin, mapping):
    made = mapping("max_index") | {"plugins": [str(plugin.file)]}
    made["model"] = made["model"] | {"encoding": "noted"}
    Path("mine.yaml").write_text(yaml.safe_dump({key: value for key, value in made.items() if key != "name"}))
    made["plugins"], made["model"] = [], made["model"] | {"encoding": "alibi"}
    Path("plain.yaml").write_text(yaml.safe_dump(made | {"name": "mine"}))
    return "mine.yaml"


@pytest.mark.slow
def test_a_plugin_runs_where_the_user_names_it_and_nowhere_else(recipe_file, plugin, capsys):
    for verb in (["show", recipe_file], ["fit", "--recipe", recipe_file]):  # their own recipe
        assert cli.main(verb) == 0
        assert plugin.has_run(), verb
    capsys.readouterr()

    run, checkpoint = "runs/mine", "runs/mine/checkpoints/last.ckpt"
    assert yaml.safe_load(Path(run, "recipe.yaml").read_text())["plugins"] == [str(plugin.file)]
    assert cli.main(["fit", "--recipe", "plain.yaml", "--set", "name=other"]) == 0
    named = ["--set", f"plugins=[{plugin.file}]"]
    for verb, code in (
        (["list", "encodings"], 0),
        (["list", "runs"], 0),
        (["compare", run], 0),
        (["compare", "--diff", run, "runs/other"], 0),
        (["evaluate", run], 2),
        (["evaluate", checkpoint], 2),
        (["fit", "--recipe", "plain.yaml", "--resume", "--out", run], 2),
        (["fit", "--recipe", "plain.yaml", "--set", f"init_from={run}", "--out", "runs/again"], 0),
        (["sweep", "plain.yaml", "--encodings", "noted", "--out", "swept"], 2),
    ):
        assert cli.main(verb) == code, (verb, capsys.readouterr())
        assert not plugin.has_run(), verb
    # Where a sweep's folder holds a run with a plugin, that of the run is not taken for the sweep's own.
    Path("swept").mkdir()
    Path(run).rename("swept/alibi_plain_s0")
    assert cli.main(["sweep", "plain.yaml", "--encodings", "alibi", "--out", "swept"]) == 2
    assert not plugin.has_run()
    Path("swept/alibi_plain_s0").rename(run)
    with pytest.raises(InputError, match="noted"):
        zoo.load(run)
    assert not plugin.has_run()
    for verb in (
        ["evaluate", run, *named],
        ["fit", "--recipe", recipe_file, "--resume", "--out", run],
        ["fit", "--recipe", "plain.yaml", *named, "--set", "model.encoding=noted", "--out", "runs/named"],
    ):
        assert cli.main(verb) == 0, (verb, capsys.readouterr())
        assert plugin.has_run(), verb


@pytest.mark.parametrize("name", ["os", "their.package:Encoding", "https://example.org/noted.py", "pipe.py"])
def test_a_plugin_is_an_ordinary_python_file(recipe_file, plugin, capsys, name):
    os.mkfifo("pipe.py")
    text = Path(recipe_file).read_text().replace(str(plugin.file), json.dumps(name))
    Path("odd.yaml").write_text(text)
    assert cli.main(["show", "odd.yaml"]) == 2
    reported = capsys.readouterr().err
    assert reported.startswith("odd.yaml:") and "plugins" in reported and "Traceback" not in reported
    assert not plugin.has_run()


@pytest.mark.parametrize("name", ["../x", "<script>alert(1)</script>", "\x1b[2J"])
def test_an_encoding_has_a_name_that_can_stand_anywhere(recipe_file, plugin, capsys, name):
    plugin.file.write_text(PLUGIN.replace('"noted"', repr(name), 1))
    assert cli.main(["show", recipe_file]) == 2
    reported = capsys.readouterr().err
    assert "not a valid name" in reported and "\x1b" not in reported and len(reported.splitlines()) == 1
    with pytest.raises(InputError, match="not a valid name"):
        zoo.register(name)(type("Odd", (zoo.Encoding,), {}))


def tree(folder, without):
    """Every file below a folder, with its size and time, but for those below some others."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not any(path.is_relative_to(one) for one in without) and not path.is_dir():
            found[str(path.relative_to(folder))] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


@pytest.mark.slow
def test_a_run_writes_into_its_folder_and_its_cache(here, mapping, monkeypatch):
    sets = ["logging=[csv, tensorboard]", "trainer.profiler=advanced", "trainer.detect_anomaly=true"]
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "home"))
    made = mapping("text")
    made["data"] = made["data"] | {"cache": "cache"}
    Path("tiny.yaml").write_text(yaml.safe_dump(made))
    before = tree(here, [])
    assert cli.main(["fit", "--recipe", "tiny.yaml", "--out", "deep/run", *settings(*sets)]) == 0
    assert tree(here, [here / "deep" / "run", here / "cache"]) == before


@pytest.mark.parametrize("setting, message", [
    ("trainer.default_root_dir=elsewhere", "--out DIR"),
    ("trainer.logger=true", "logging"),
    ("trainer.overfit_batches=1", "order of the data"),
    ("name=../x", "letters, digits"),
])  # fmt: skip
def test_nothing_in_a_recipe_says_where_a_run_is_written(here, mapping, capsys, setting, message):
    Path("tiny.yaml").write_text(yaml.safe_dump(mapping("max_index")))
    assert cli.main(["fit", "--recipe", "tiny.yaml", "--set", setting]) == 2
    assert message in capsys.readouterr().err
    assert os.listdir() == ["tiny.yaml"]
