"""A checkpoint names the plugins of its training; a message says which are missing or edited."""

import hashlib
import importlib
import json
import re

import pytest
import torch

import zoo
from zoo import registry
from zoo.errors import InputError
from zoo.registry import Description
from zoo.reports.fit import fit
from zoo.runs.code_source import (
    compare_code,
    encoding_sources,
    packages,
    recorded_sources,
)
from zoo.runs.load import load_run

pytestmark = pytest.mark.usefixtures("unmeasured")

PLUGIN = '''\
import zoo
from zoo.encodings.wrapper import Wrapper


@zoo.register("mine")
class Mine(zoo.Encoding):
    """Nothing."""

    reads_positions = False


@zoo.register("around")
class Around(Wrapper):
    """Another, as it is."""

    def __init__(self, size: zoo.Size, *, of: zoo.Encoding):
        super().__init__(size, of)
'''


@pytest.fixture
def forget(forgetful_registry):
    """Forget the plugins, as a new process would."""

    def forget():
        for name in ("mine", "around"):
            registry.encodings.entries.pop(name, None)

    return forget


def compared(sources):
    return compare_code({"code_source": sources}, "run")


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def trained(here, recipe, forget):
    """A run with a plugin and an encoding of the package, the plugin forgotten; and its file."""
    plugin = here / "mine.py"
    plugin.write_text(PLUGIN)
    encoding = "[{name: around, of: {name: around, of: mine}}, alibi]"
    folder = fit(recipe("max_index", f"plugins=[{plugin}]", f"model.encoding={encoding}"))
    forget()
    return folder, plugin


def test_the_card_and_the_checkpoint_name_every_plugin_s_encoding_once(trained):
    folder, plugin = trained
    expected = [{"name": name, "file": str(plugin), "sha256": digest(plugin)} for name in ("around", "mine")]
    assert json.loads((folder / "card.json").read_text())["code_source"] == expected
    content = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert recorded_sources(content["zoo_card"]) == expected


def test_loading_without_it_names_file_and_content(trained, here):
    folder, plugin = trained
    named = f"trained with encoding 'around' of {plugin} (sha256 {digest(plugin)[:12]})"
    other = here / "other.py"  # another file than the one that is needed
    other.write_text(PLUGIN.replace('"mine"', '"another"').replace('"around"', '"elsewhere"'))
    for plugins in ((), other):
        with pytest.raises(InputError, match=re.escape(named)):
            zoo.load(folder, plugins=plugins)
    with pytest.raises(InputError, match=r"nowhere\.py: .*no such file"):
        zoo.load(folder, plugins=here / "nowhere.py")


def test_a_file_that_was_edited_is_reported_in_one_line_and_goes_on(trained, recipe, forget, capsys):
    folder, plugin = trained
    then = digest(plugin)[:12]
    zoo.load(folder, plugins=plugin)
    assert "warning" not in capsys.readouterr().err
    forget()
    # Elsewhere, the same file is the same encoding.
    moved = plugin.with_name("moved.py")
    moved.write_bytes(plugin.read_bytes())
    zoo.load(folder, plugins=moved)
    assert "warning" not in capsys.readouterr().err
    forget()
    plugin.write_text(PLUGIN + "# edited\n")
    model = zoo.load(folder, plugins=plugin)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" may ")[0] for line in lines] == [
        f"warning: {folder}: encoding {name!r}" for name in ("around", "mine")
    ]
    assert all(then in line and digest(plugin)[:12] in line for line in lines)
    # Its results are stored apart from those of the trained code.
    assert load_run(folder, plugins=[plugin]).task.changed == {
        f"code.{name}": digest(plugin)[:12] for name in ("around", "mine")
    }
    assert model(torch.ones(1, 8, dtype=torch.long)).shape == (1, 8)


def test_going_on_with_another_file_is_reported_too(here, recipe, forget, capsys):
    plugin = here / "mine.py"
    plugin.write_text(PLUGIN)
    changes = "max_index", f"plugins=[{plugin}]", "model.encoding=mine", "optimizer.schedule=constant"
    then = digest(plugin)
    fit(recipe(*changes))
    forget()
    plugin.write_text(PLUGIN + "# edited\n")
    folder = fit(recipe(*changes, "trainer.max_steps=8"), resume=True)
    assert f"warning: {folder}: encoding 'mine' may have changed" in capsys.readouterr().err
    assert json.loads((folder / "card.json").read_text())["changed_on_resume"] == [
        {"step": 6, "key": "trainer.max_steps", "from": 6, "to": 8},
        {"step": 6, "key": "code.mine", "from": then, "to": digest(plugin)},
    ]


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Pretend that a package is installed in a version, with an encoding or without."""
    file = tmp_path / "theirs.py"
    file.write_text("one\n")
    theirs = type("Theirs", (registry.encodings.load("none"),), {"__module__": "their_package.encodings"})

    def package(version, has=True):
        it = Description("encoding", "theirs", theirs, file, 1)
        known = {**registry.encodings.all(), **({"theirs": it} if has and version else {})}
        monkeypatch.setattr(registry.encodings, "entries", known)
        monkeypatch.setitem(registry._packages, "their_package", f"their-package {version}")
        if not (has and version):
            known.pop("theirs", None)
        return file

    return package


def test_a_package_is_asked_for_by_name_and_version(package):
    package("1.0")
    sources = encoding_sources([{"name": "theirs"}, {"name": "none"}])
    (source,) = sources
    assert (source["package"], source["version"]) == ("their-package", "1.0")
    assert compared(sources) == ([], {})
    needs = "trained with encoding 'theirs' of their-package 1.0"
    digest = f"(sha256 {source['sha256'][:12]})"
    for installed in (None, "2.0"):
        package(installed, has=False)
        assert compared(sources)[0] == [f"{needs} {digest}: pip install their-package==1.0"]


def test_a_package_of_another_version_or_content_is_reported(package, capsys):
    package("1.0")
    sources = encoding_sources({"name": "theirs"})
    package("1.1")
    assert [*compared(sources)[1]] == ["code.theirs"]
    text = capsys.readouterr().err
    assert (
        text.startswith("warning: run: encoding 'theirs' may have changed")
        and "then their-package 1.0 (" in text
        and "now their-package 1.1 (" in text
    )
    package("1.0").write_text("two\n")
    assert len(compared(sources)[1]) == 1


def test_an_edited_module_of_a_package_is_reported(tmp_path, monkeypatch, forgetful_registry):
    folder = tmp_path / "wave_package"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "helper.py").write_text("STEP = 1\n")
    (folder / "wave.py").write_text("import zoo\n@zoo.register('wave')\nclass Wave(zoo.Encoding): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry._packages, "wave_package", "wave-pe 1.0")
    importlib.import_module("wave_package.wave")
    sources = encoding_sources({"name": "wave"})
    assert packages(sources) == ["wave-pe==1.0"] and compared(sources) == ([], {})
    (folder / "inner" / "helper.pyc").write_text("")
    assert compared(sources) == ([], {})
    for edit in (
        lambda: (folder / "inner" / "helper.py").write_text("STEP = 2\n"),
        lambda: (folder / "wave.py").write_text("# edited\n"),
        lambda: (folder / "inner" / "helper.py").rename(folder / "helper.py"),
    ):
        before = encoding_sources({"name": "wave"})
        edit()
        assert len(compared(before)[1]) == 1


def test_a_class_of_no_file_has_to_be_registered_again(forgetful_registry):
    scope = {"zoo": zoo, "__name__": "__notebook__"}
    exec("@zoo.register('cell')\nclass Cell(zoo.Encoding): ...", scope)
    sources = encoding_sources({"name": "cell"})
    assert sources == [{"name": "cell", "file": "<__notebook__>", "sha256": ""}]
    assert compared(sources) == ([], {})
    del registry.encodings.entries["cell"]
    assert compared(sources)[0][0].endswith("register it again before you load this")
