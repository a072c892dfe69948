"""The registry: descriptions of encodings from the package, plugin files, classes, installed packages."""

import os
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import zoo
from zoo import plugins as plugin_reader
from zoo import registry
from zoo.encodings.base import Encoding
from zoo.errors import InputError
from zoo.registry import encodings

PLUGINS = sorted((Path(__file__).parent / "plugins").glob("*.py"))


@pytest.fixture
def plugin(tmp_path, forgetful_registry):
    """Write a plugin file; gives its path."""

    def plugin(source, name="mine.py"):
        file = tmp_path / name
        file.write_text(f"import zoo\n{source}")
        return file

    return plugin


def expected(description):
    """The fields of a description, except how its class is imported."""
    fields = {**vars(description), "file": description.file.resolve()}
    del fields["module"], fields["package"]
    return fields


# Descriptions.


def test_a_description_is_that_of_the_class(plugins):
    for name in [*encodings.names(), *(one.name for file in PLUGINS for one in encodings.read(file))]:
        read, declared = encodings.describe(name), encodings.describe_class(name, encodings.load(name))
        assert expected(read) == expected(declared), name
    assert {fact: getattr(Encoding, fact) for fact in encodings.facts} == encodings.facts


EVERY_KIND = """
from typing import Literal, Optional
from zoo.encodings.base import Encoding

@zoo.register("every_kind")
class EveryKind(Encoding):
    '''Options of every kind.'''

    def __init__(
        self,
        size,
        *,
        of: Encoding,
        several: list[Encoding] | None = None,
        maybe: Optional[Encoding] = None,
        number: float = -1.5,
        count: int | None = None,
        flag: bool = True,
        word: Literal["a", "b"] = "a",
        numbers: list[float] = [1.0, 2.0],
        needed: str,
    ):
        super().__init__(size)
"""


def test_options_of_every_kind(plugin):
    (read,) = registry.read_plugin(plugin(EVERY_KIND))
    assert expected(read) == expected(encodings.describe_class("every_kind", encodings.load("every_kind")))
    options = {option.name: option for option in read.options}
    assert options["of"].annotation is registry.WRAPPED
    assert options["of"].default is options["needed"].default is registry.REQUIRED
    wrapped = {name for name, option in options.items() if registry.holds_wrapped(option.annotation)}
    assert wrapped == {"of", "several", "maybe"}
    assert [n for n, option in options.items() if registry.holds_several(option.annotation)] == ["several"]


def test_a_class_derived_from_one_of_the_zoo_inherits_its_declarations(plugin):
    source = """
from zoo.encodings.bias import alibi

@zoo.register("mine")
class Mine(alibi.ALiBi):
    extrapolates = "no"
"""
    (read,) = registry.read_plugin(plugin(source))
    alibi = encodings.describe("alibi")
    assert expected(read) == expected(encodings.describe_class("mine", encodings.load("mine")))
    assert read.options == alibi.options
    assert (read.relative, read.distance_only, read.paper) == (True, True, alibi.paper)
    assert read.extrapolates == "no"


def test_options_of_its_own_replace_those_it_would_inherit(plugin):
    source = """
from zoo.encodings.bias.alibi import ALiBi

@zoo.register("mine")
class Mine(ALiBi):
    def __init__(self, size, *, steepness: float = 2.0):
        super().__init__(size)
"""
    (read,) = registry.read_plugin(plugin(source))
    assert [option.name for option in read.options] == ["steepness"]


@pytest.mark.launch
def test_neither_listing_nor_describing_imports_torch():
    code = (
        "import sys, zoo, zoo.registry as r; "
        "[k.describe(n).options for k in r.KINDS.values() for n in k.names()];"
        "print([m for m in ('torch', 'lightning', 'datasets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.strip() == "[]", done.stderr


# Classes of the running program.


def test_a_class_decorated_in_the_running_program_is_known(forgetful_registry, model_of, tokens):
    @zoo.register("live")
    class Live(zoo.Encoding):
        """Made here.

        And more.
        """

        paper = "None"
        relative = True

        def __init__(
            self, size: zoo.Size, *, of: zoo.Encoding, width: typing.Literal[1, 2] = 1, x: float = 0.5
        ):
            super().__init__(size)
            self.of, self.x = of, x

    assert "live" in zoo.encodings.names()
    about = zoo.encodings.describe("live")
    assert (about.summary, about.paper, about.relative, about.encoder) == ("Made here.", "None", True, True)
    assert [(o.name, o.annotation, o.default) for o in about.options] == [
        ("of", registry.WRAPPED, registry.REQUIRED),
        ("width", typing.Literal[1, 2], 1),
        ("x", float, 0.5),
    ]
    assert about.where.startswith(f"{Path(__file__).resolve()}:")
    assert encodings.load("live") is Live
    model = model_of({"name": "live", "of": "alibi", "x": 2.0})
    assert model.encoding.view(0).encodings[0].x == 2.0
    assert model(tokens(1, 4)).isfinite().all()


def test_a_class_from_no_file_is_known_too(forgetful_registry):
    scope = {"zoo": zoo, "__name__": "__notebook__"}
    for default in (1, 2):  # a cell run again
        cell = "@zoo.register('cell')\nclass Cell(zoo.Encoding):\n"
        cell += f"    def __init__(self, size, *, x: int = {default}): ..."
        exec(cell, scope)
        (option,) = encodings.describe("cell").options
        assert (option.name, option.annotation, option.default) == ("x", int, default)
    assert encodings.describe("cell").where == "<__notebook__>:1"


def test_a_plugin_that_was_imported_may_be_named_by_a_recipe_too(plugin, monkeypatch, tmp_path):
    file = plugin(
        "@zoo.register('imported')\nclass Imported(zoo.Encoding):\n    '''One.'''", "imported_first.py"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("imported_first")
    registry.read_plugin(file)
    assert encodings.load("imported") is module.Imported


# A name taken twice.


def test_a_file_cannot_take_a_name_of_the_zoo(plugin):
    file = plugin("@zoo.register('alibi')\nclass Other(zoo.Encoding): ...")
    with pytest.raises(InputError) as caught:
        registry.read_plugin(file)
    assert str(caught.value) == (
        f"{file}:3: the name 'alibi' is taken by {encodings.describe('alibi').where}; choose another"
    )
    assert encodings.load("alibi").__name__ == "ALiBi"


def test_two_files_or_two_classes_of_one_cannot_take_the_same_name(plugin):
    source = "@zoo.register('mine')\nclass Mine(zoo.Encoding): ...\n"
    one, other = plugin(source), plugin(source, "other.py")
    registry.read_plugin(one)
    registry.read_plugin(one)
    with pytest.raises(InputError, match=f"{other}:3: the name 'mine' is taken by {one}:3"):
        registry.read_plugin(other)
    twice = plugin(source.replace("mine", "twice") + source.replace("mine", "twice").replace("Mine", "Again"))
    with pytest.raises(InputError, match=f"{twice}:5: the name 'twice' is taken by {twice}:3"):
        registry.read_plugin(twice)


def test_a_live_class_cannot_take_a_name_of_the_zoo(forgetful_registry):
    class Other(zoo.Encoding): ...

    name = "alibi"
    about = encodings.describe(name)
    with pytest.raises(InputError) as caught:
        zoo.register(name)(Other)
    for part in (f"two encodings are called {name!r}", about.class_name, about.where, f"Other ({__file__}:"):
        assert part in str(caught.value)
    assert encodings.load(name).__name__ == about.class_name


def test_two_live_classes_cannot_take_the_same_name(forgetful_registry):
    class One(zoo.Encoding): ...

    class Other(zoo.Encoding): ...

    zoo.register("live")(One)
    with pytest.raises(InputError, match=r"One \(.*Other \("):
        zoo.register("live")(Other)


# Faults of a plugin.


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class Mine(zoo.Encoding): ...", "no class here is decorated"),
        ("class Mine(:", ":2: not Python: "),
    ],
)
def test_a_file_without_an_encoding(source, message, plugin):
    file = plugin(source)
    with pytest.raises(InputError, match=f"{file}.*{message}"):
        registry.read_plugin(file)


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.py: cannot be read: No such file"):
        registry.read_plugin(tmp_path / "nowhere.py")


@pytest.mark.parametrize(
    ("source", "line", "cause"),
    [
        ("def fault():\n    return 1 / 0\nfault()\n", 3, "ZeroDivisionError"),
        ("import no_such_module_anywhere\n", 2, "ModuleNotFoundError"),
        ("@zoo.register('mine')\nclass Mine: ...\n", 2, "'mine' is registered for .*not derive from"),
    ],
)
def test_an_error_in_a_plugin_is_reported_with_its_line(source, line, cause, plugin):
    file = plugin(source + "\n\n@zoo.register('mine')\nclass Mine(zoo.Encoding): ...\n")
    registry.read_plugin(file)
    with pytest.raises(InputError, match=f"^{file}:{line}: the plugin cannot be imported: {cause}"):
        encodings.load("mine")


def test_an_unknown_name_is_reported_with_the_nearest():
    with pytest.raises(InputError, match="no encoding 'alibbi'; did you mean 'alibi'"):
        encodings.describe("alibbi")
    with pytest.raises(
        InputError, match=r"no encoding 'zzz'; there are: alibi, .*plugins: \[my_encoding.py\]"
    ):
        encodings.load("zzz")


# Installed packages.


class Point:
    """An entry point, as `importlib.metadata` gives it."""

    dist = None

    def __init__(self, module):
        self.name = self.value = self.module = module


@pytest.fixture
def installed(tmp_path, monkeypatch, forgetful_registry):
    """Install a package with these files, which advertises its module `encodings`."""

    def installed(**files):
        folder = tmp_path / "their_package"
        folder.mkdir()
        for name, source in {"__init__": "", **files}.items():
            (folder / f"{name}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(plugin_reader, "entry_points", lambda group: [Point("their_package.encodings")])
        vars(encodings).pop("_installed", None)

    yield installed
    for name in [name for name in sys.modules if name.startswith("their_package")]:
        del sys.modules[name]
    monkeypatch.undo()
    vars(encodings).pop("_installed", None)


def test_an_installed_package_is_found_and_imported_by_its_name(installed):
    theirs = "import zoo\nfrom .size import STEP\n@zoo.register('theirs')\n"
    installed(encodings=theirs + "class Theirs(zoo.Encoding):\n    step = STEP\n", size="STEP = 3\n")
    assert "theirs" in encodings.names()
    assert encodings.load("theirs").step == 3
    assert encodings.load("theirs").__module__ == "their_package.encodings"


def test_a_broken_package_breaks_only_itself(installed):
    installed(encodings="class Broken(")
    assert "alibi" in encodings.names()
    assert list(encodings.broken) == ["their_package.encodings"]
    with pytest.raises(
        InputError, match=r"cannot be used: package their_package\.encodings: .*:1: not Python"
    ):
        encodings.describe("their_package.encodings")


def test_a_package_that_takes_a_name_of_the_zoo_is_refused(installed):
    installed(encodings="import zoo\n@zoo.register('rope')\nclass Other(zoo.Encoding): ...")
    assert encodings.describe("rope").class_name == "RoPE"
    assert "the name 'rope' is taken by" in next(iter(encodings.broken.values()))


def test_a_class_that_is_not_an_encoding_is_refused(forgetful_registry):
    with pytest.raises(InputError, match=r"does not derive from Encoding"):

        @encodings.register("no_encoding")
        class Other:
            pass


def test_every_encoding_has_its_formula_in_latex():
    for name in encodings.names():
        formula = encodings.describe(name).formula
        assert formula and formula.count("{") == formula.count("}") and "$" not in formula, name
        assert formula == encodings.load(name).formula, name
