"""The registry: classes of the zoo, of plugin files, of the running program, and of installed packages."""

import sys
import typing
from pathlib import Path
from typing import NamedTuple

import pytest

import zoo
import zoo.cli
from zoo import registry
from zoo.errors import InputError
from zoo.recipe import resolve
from zoo.registry import encodings


@pytest.fixture
def plugin(tmp_path):
    """Write a plugin file; gives its path."""

    def plugin(source, name="mine.py"):
        file = tmp_path / name
        file.write_text(f"import zoo\n{source}")
        return file

    return plugin


# Options.

EVERY_KIND = """
from __future__ import annotations
from typing import TYPE_CHECKING, Literal, Optional
from zoo.encodings.base import Encoding
if TYPE_CHECKING:
    from nowhere import Unknown

@zoo.register("every_kind")
class EveryKind(Encoding):
    '''Options of every kind.'''

    def __init__(
        self,
        size: Unknown,
        *,
        of: Encoding,
        several: list[Encoding] | None = None,
        maybe: Optional[Encoding] = None,
        number: float = -1.5,
        word: Literal["a", "b"] = "a",
        wild: Unknown = None,
        needed: str,
    ):
        super().__init__(size)
"""


def test_options_of_every_kind(tmp_path):
    (tmp_path / "mine.py").write_text(EVERY_KIND.replace("\nfrom typing", "\nimport zoo\nfrom typing", 1))
    (read,) = registry.load_plugin(tmp_path / "mine.py")
    options = {option.name: option for option in read.options}
    assert options["of"].default is options["needed"].default is registry.REQUIRED
    assert [n for n, one in options.items() if registry.is_encoding(one.annotation)] == ["of"]
    wrapped = [n for n, one in options.items() if one.wraps]
    assert wrapped == ["of", "several", "maybe"]
    assert [n for n, one in options.items() if registry.holds_several(one.annotation)] == ["several"]
    rest = [(one.annotation, one.default) for n, one in options.items() if n not in (*wrapped, "needed")]
    assert rest == [(float, -1.5), (typing.Literal["a", "b"], "a"), (typing.Any, None)]


INHERITED = '''
class Base(zoo.Encoding):
    """A base.

    Args:
        slope: of the base.
    """
    relative = True

    def __init__(self, size, *, slope: float = 1.0, far: int = 5):
        super().__init__(size)

@zoo.register("more")
class More(Base):
    """A class with an option more.

    Args:
        own: its own.
    """

    def __init__(self, size, *, own: bool = False, far: int = 7, **more):
        super().__init__(size, far=far, **more)

@zoo.register("most")
class Most(More):
    """One that has none of its own."""

@zoo.register("less")
class Less(More):
    """One that takes nothing of its base."""

    def __init__(self, size, *, alone: str = "a"):
        super().__init__(size)
'''


def test_options_attributes_and_help_are_inherited(plugin):
    about = {one.name: one for one in registry.load_plugin(plugin(INHERITED))}
    options = {name: {option.name: option.default for option in one.options} for name, one in about.items()}
    assert options["more"] == options["most"] == {"own": False, "far": 7, "slope": 1.0}
    assert options["less"] == {"alone": "a"}
    assert about["most"].help == {"slope": "of the base.", "own": "its own."}
    assert about["less"].relative and about["less"].summary == "One that takes nothing of its base."


def test_every_encoding_has_its_formula_in_latex():
    for name in encodings.names():
        formula = encodings.describe(name).formula
        assert formula and formula.count("{") == formula.count("}") and "$" not in formula, name


# Classes of the running program.


def test_a_class_decorated_in_the_running_program_is_known(model_of, tokens):
    @zoo.register("live")
    class Live(zoo.Encoding):
        """Made here.

        And more.
        """

        relative = True

        def __init__(self, size: zoo.Size, *, of: zoo.Encoding, x: float = 0.5):
            super().__init__(size)
            self.of, self.x = of, x

    assert "live" in zoo.encodings.names()
    about = zoo.encodings.describe("live")
    assert (about.summary, about.relative, about.encoder, about.builtin) == ("Made here.", True, True, False)
    assert about.where.startswith(f"{Path(__file__).resolve()}:")
    assert encodings.load("live") is Live
    model = model_of({"name": "live", "of": "alibi", "x": 2.0})
    assert model.encoding.layer(0).encodings[0].x == 2.0
    assert model(tokens(1, 4)).isfinite().all()


def test_a_class_from_no_file_is_known_too():
    scope = {"zoo": zoo, "__name__": "__notebook__"}
    for default in (1, 2):  # a cell run again
        cell = "@zoo.register('cell')\nclass Cell(zoo.Encoding):\n"
        cell += f"    def __init__(self, size, *, x: int = {default}): ..."
        exec(cell, scope)
        (option,) = encodings.describe("cell").options
        assert (option.name, option.annotation, option.default) == ("x", int, default)
    assert encodings.describe("cell").where == "<__notebook__>:1"


# Plugin files.

COUNTED = "zoo.runs_of_this_file = getattr(zoo, 'runs_of_this_file', 0) + 1\n"
MINE = "@zoo.register('mine')\nclass Mine(zoo.Encoding): ...\n"


def test_a_file_is_imported_once(plugin, monkeypatch):
    monkeypatch.setattr(zoo, "runs_of_this_file", 0, raising=False)
    for _ in range(2):
        registry.load_plugin(plugin(COUNTED + MINE))
        assert zoo.runs_of_this_file == 1


def test_a_plugin_that_was_imported_may_be_named_by_a_recipe_too(plugin, monkeypatch, tmp_path):
    file = plugin(MINE, "imported_first.py")
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("imported_first")
    registry.load_plugin(file)
    assert encodings.load("mine") is module.Mine


def test_two_classes_cannot_take_the_same_name(plugin):
    one, other = plugin(MINE), plugin(MINE, "other.py")
    registry.load_plugin(one)
    with pytest.raises(InputError, match=rf"Mine \({one}:3\) and Mine \({other}:3\)"):
        registry.load_plugin(other)
    twice = plugin((MINE + MINE.replace("Mine", "Again")).replace("'mine'", "'twice'"), "twice.py")
    with pytest.raises(InputError, match=rf"Mine \({twice}:3\) and Again \({twice}:5\)"):
        registry.load_plugin(twice)
    assert "twice" not in encodings.names()

    class Other(zoo.Encoding): ...

    for name in ("alibi", "mine"):
        about = encodings.describe(name)
        with pytest.raises(InputError) as caught:
            zoo.register(name)(Other)
        for part in (f"two encodings are called {name!r}", about.where, f"Other ({__file__}:"):
            assert part in str(caught.value)
        assert encodings.load(name) is about.cls


@pytest.mark.parametrize(("source", "line", "cause"), [
    ("class Mine(zoo.Encoding): ...", 1, "no class here is decorated"),
    ("class Mine(:", 2, "not Python: "),
    ("def fault():\n    return 1 / 0\nfault()\n", 3, "ZeroDivisionError"),
    ("import sys\nsys.exit(1)\n", 3, "SystemExit"),
    (MINE.replace("(zoo.Encoding)", ""), 2, "'mine' is registered for .*not derive from"),
    (MINE.replace("('mine')", ""), 2, "registered without a name: write @zoo.register"),
    ("@zoo.register('mine')\ndef mine(): ...\n", 2, "'mine' is registered for .*not derive from"),
])  # fmt: skip
def test_a_fault_of_a_plugin_is_reported_with_its_line(source, line, cause, plugin):
    file = plugin(source)
    with pytest.raises(InputError, match=rf"^{file}:{line}: .*{cause}"):
        registry.load_plugin(file)
    assert "mine" not in encodings.names()


def test_a_default_that_its_type_does_not_allow_is_refused(plugin, mapping):
    file = plugin(MINE.replace("...", "\n    def __init__(self, size, *, slope: float = None): ..."))
    recipe = mapping("text") | {"plugins": [str(file)]}
    recipe["model"] = {**recipe["model"], "encoding": "mine"}
    with pytest.raises(InputError, match=rf"{file}:\d+: option slope: its type does not allow .*None"):
        resolve(recipe)


def test_what_is_not_there_is_wrong_input(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.py: no such file"):
        registry.load_plugin(tmp_path / "nowhere.py")
    with pytest.raises(InputError, match="no encoding 'alibbi'; did you mean 'alibi'"):
        encodings.describe("alibbi")
    with pytest.raises(InputError, match="no encoding 'zzz'; there are: abacus, "):
        encodings.load("zzz")


# Installed packages.


class Point(NamedTuple):
    """An entry point, as `importlib.metadata` gives it."""

    name: str
    module: str
    dist: None = None

    @property
    def value(self):
        return self.module


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """installed(package, name, **files): install a package whose module `encodings` advertises a name."""
    points = []
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "entry_points", lambda group: points)

    def installed(package, name, **files):
        (tmp_path / package).mkdir()
        for module, source in {"__init__": "", **files}.items():
            (tmp_path / package / f"{module}.py").write_text(source)
        points.append(Point(name, f"{package}.encodings"))
        monkeypatch.setattr(encodings, "_installed_imported", False)

    encodings.names()
    yield installed
    for name in [name for name in sys.modules if name.split(".")[0] in ("their_package", "another_package")]:
        del sys.modules[name]


THEIRS = "import zoo\n@zoo.register('theirs')\nclass Theirs(zoo.Encoding):\n    step = 3\n"


@pytest.mark.parametrize(("source", "message"), [
    ("class Broken(", "not Python"), ("import zoo\n", "no class is decorated"), ("raise SystemExit", "Exit"),
    ("import zoo\n@zoo.register('rope')\nclass Other(zoo.Encoding): ...", "two encodings are called 'rope'"),
])  # fmt: skip
def test_a_package_that_cannot_be_used_is_named(source, message, installed, capsys):
    installed("their_package", "theirs", encodings=source)
    with pytest.raises(InputError, match=rf"^package their_package\.encodings cannot be used: .*{message}"):
        encodings.describe("rope")
    assert zoo.cli.main(["list"]) == 2
    assert capsys.readouterr().err.endswith("; mend or uninstall it\n")
