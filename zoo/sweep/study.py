"""A study: a recipe with encodings, seeds and settings. Each combination is an entry."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from filelock import FileLock, Timeout
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from zoo import registry
from zoo.comparison import stored
from zoo.comparison.run_info import RunInfo
from zoo.errors import InputError, Problem, collect, hint, shorten
from zoo.recipe import Recipe, Tree, read_recipe, resolve, to_yaml_line
from zoo.recipe.error_messages import explain_validation_error
from zoo.recipe.fields import Positive
from zoo.recipe.tree import KeyPath, read_file
from zoo.runs.load import changes_of_model
from zoo.tasks import build_encoding

S = TypeVar("S", bound="Study")

STRICT = ConfigDict(extra="forbid")
OWNED = {
    "seed": "the sweep sets it, by its seeds",
    "name": "each run of a sweep has a name of its own",
    "model.encoding": "the sweep sets it: give options with the encoding",
}
"""Keys that `set` and `grid` cannot have."""


@dataclass(frozen=True, config=STRICT)
class Reading:
    """Another evaluation of every checkpoint of a study.

    Attributes:
        name: its measurements have it as their parameter `data`.
        data: a dataset, or a folder among the corpora.
        lengths, protocols: of this evaluation.
        set: further `key=value` changes, such as options of the data.
    """

    name: str
    data: str
    lengths: list[int]
    protocols: list[str]
    set: list[str] = field(default_factory=list)


@dataclass(frozen=True, config=STRICT)
class During:
    """The evaluation of earlier checkpoints of a run."""

    steps: list[int]
    lengths: list[int]
    protocols: list[str]


@dataclass(frozen=True, config=STRICT)
class Study:
    """The content of a study file.

    A file may have a further key `extends`: another study file, whose keys it inherits.

    Attributes:
        name: by default that of the file, without a number before it.
        base: the recipe, relative to the study file, or the name of a recipe.
        encodings: `all`, or names; or these for each seed. They are entries of the table seed by seed.
        seeds: where `encodings` gives none.
        lengths, protocols: of the evaluation; by default those of the recipe.
        set: further `key=value` changes of the recipe.
        grid: for keys of the recipe the values to try: every encoding is trained with every combination.
        options: of encodings. With a `name` among them they are a further encoding of the study: that one
            with these options. So is a list: a combination.
        own: for an encoding, `key=value` changes of the recipe that it alone has.
        after_training: for an encoding, or for one entry such as rope_seed0, the `key=value` changes with
            which a checkpoint is evaluated again.
        readings: further evaluations of each checkpoint, on other data.
        during: further evaluations of the checkpoints at these steps, for a recipe that keeps them.
        precision, compile: of training and evaluation.
        threads: of a CPU; fixed, because sums depend on how they are split among threads.
        accelerator: of all entries.
        page: for programs that show the study; a sweep does not read it.
    """

    name: str
    base: str
    encodings: Literal["all"] | list[str] | dict[int, Literal["all"] | list[str]]
    seeds: list[int] = field(default_factory=lambda: [0])
    lengths: list[int] = field(default_factory=list)
    protocols: list[str] = field(default_factory=list)
    set: list[str] = field(default_factory=list)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    options: dict[str, dict[str, Any] | list[Any]] = field(default_factory=dict)
    own: dict[str, list[str]] = field(default_factory=dict)
    after_training: dict[str, list[list[str]]] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    during: During | None = None
    precision: str = "32-true"
    compile: bool = False
    threads: Positive = 2
    accelerator: Literal["cpu", "gpu"] = "cpu"
    page: dict[str, Any] = field(default_factory=dict)

    def recipe(self, encoding: str, seed: int, setting: Sequence[str] = ()) -> Recipe:
        """The resolved recipe of an entry; `setting` are `key=value` changes of the grid."""
        return read_recipe(self.base, [text for text, _ in self.changes(encoding, seed, setting)])

    def changes(self, encoding: str, seed: int, setting: Sequence[str] = ()) -> list[tuple[str, KeyPath]]:
        """The `key=value` changes that make the recipe of an entry, and the key of the study for each."""
        given = self.options.get(encoding, {})
        spec = given if isinstance(given, list) else {"name": encoding, **given}
        seeds = ("seeds", self.seeds.index(seed)) if seed in self.seeds else ("encodings",)
        values: dict[str, tuple[Any, KeyPath]] = {
            "model.encoding": (spec, self._place(encoding)),
            "name": (self.run_name(encoding, seed, setting), ("name",)),
            "seed": (seed, seeds),
            **{key: (value, (key.rpartition(".")[2],)) for key, value in self.fixed.items() if value != []},
        }
        return [
            *((text, ("set", index)) for index, text in enumerate(self.set)),
            *((text, ("grid", text.partition("=")[0])) for text in setting),
            *((text, ("own", encoding, index)) for index, text in enumerate(self.own.get(encoding, ()))),
            *((f"{key}={to_yaml_line(value)}", path) for key, (value, path) in values.items()),
        ]

    def _place(self, encoding: str) -> KeyPath:
        named = {name: path for path, name in _texts(self.encodings, ("encodings",))}
        return ("options", encoding) if encoding in self.options else named.get(encoding, ("encodings",))

    @property
    def fixed(self) -> dict[str, Any]:
        """Values of the recipe that all entries of a table share."""
        return {
            "logging": ["csv"],
            "compile": self.compile,
            "trainer.devices": 1,
            "trainer.accelerator": self.accelerator,
            "trainer.precision": self.precision,
            "evaluate.lengths": self.lengths,
            "evaluate.protocols": self.protocols,
        }

    def run_name(self, encoding: str, seed: int, setting: Sequence[str]) -> str:
        """The name in the recipe of an entry."""
        return f"{encoding}_{self.name}_seed{seed}"

    @property
    def by_seed(self) -> dict[int, str | list[str]]:
        """`all`, or the names of encodings, for each seed."""
        given = self.encodings
        return given if isinstance(given, dict) else dict.fromkeys(self.seeds, given)

    @property
    def settings(self) -> list[tuple[str, ...]]:
        """The combinations of the grid."""
        texts = [
            [f"{key}={value if isinstance(value, str) else to_yaml_line(value)}" for value in values]
            for key, values in self.grid.items()
        ]
        return [*itertools.product(*texts)]

    @property
    def known(self) -> list[str]:
        """The registered encodings, and those that the study names itself."""
        own = [name for name, given in self.options.items() if isinstance(given, list) or "name" in given]
        return list(dict.fromkeys([*registry.encodings.names(), *own]))

    def entries(self, out: Path) -> list[Entry]:
        """All entries, seed by seed."""
        return [
            self.entry(self, encoding, seed, out, setting)
            for (seed, wanted), setting in itertools.product(self.by_seed.items(), self.settings)
            for encoding in self._names(wanted)
        ]

    def _names(self, wanted: str | list[str]) -> list[str]:
        """The encodings in the order of the registry. `all` leaves out those that the registry declares for
        the other kind of model, or for the evaluation of another encoding's checkpoints alone."""
        known = self.known
        if wanted != "all":
            return sorted(dict.fromkeys(wanted), key=lambda name: [*known, name].index(name))
        kind, every = self.recipe("none", 0).model.kind, registry.encodings.all()
        left_out = {name for name, about in every.items() if not getattr(about, kind) or about.replaces}
        return [name for name in known if name not in left_out]

    @property
    def entry(self) -> type[Entry]:
        return Entry

    def validate(self, tree: Tree) -> None:
        """Raises InputError for every recipe that is wrong; `tree` has the location of each key."""
        if "all" in self.by_seed.values():
            self._validate_entry(Entry(self, "none", 0, Path()), tree)
        entries = self.entries(Path())[::-1]
        if not entries:
            message = "no entries: name an encoding, a seed and a value of each key in `grid`"
            raise InputError(tree.problem(("encodings",), message))
        # Every encoding with every setting, and every seed.
        tried = [*{(one.encoding, one.setting): one for one in entries}.values()]
        problems: list[Problem] = []
        for one in [*reversed(tried), *{one.seed: one for one in entries}.values()]:
            with collect(problems):
                self._validate_entry(one, tree)
        if self.during and not problems:
            recipe = entries[0].recipe
            every, last = recipe.checkpoint.keep_every_n_steps, recipe.trainer.max_steps
            if not every or any(step % every for step in self.during.steps):
                message = f"checkpoint.keep_every_n_steps, {every}, must divide them"
                problems.append(tree.problem(("during", "steps"), message))
            if not all(0 < step <= last for step in self.during.steps):
                problems.append(tree.problem(("during", "steps"), f"must be from 1 to {last}"))
        for one, changes, path in self._later(entries) if not problems else ():
            with collect(problems), _located(tree, changes, path):
                stored = one.recipe.as_dict()
                recipe = resolve(stored, [text for text, _ in changes], trained=True)
                if path[0] == "readings":  # of other data
                    recipe = recipe.model_copy(update={"data": one.recipe.data})
                changes_of_model(stored, recipe)
                build_encoding(recipe)
        known = sorted({*self.known, *(one.encoding for one in entries)})  # plugins are imported now
        problems += [
            tree.problem((key, name), f"no encoding {name!r}; {hint(name, known)}")
            for key, names in (
                ("options", known),
                ("own", known),
                ("after_training", [*known, *(one.name for one in entries)]),
            )
            for name in getattr(self, key)
            if name not in names
        ]
        if problems:
            raise InputError(dict.fromkeys(problems))

    def _validate_entry(self, entry: Entry, tree: Tree) -> None:
        owned = [
            Problem(why, key, tree.location(path))
            for text, path in entry.changes
            for key, why in OWNED.items()
            if path[0] in ("set", "grid", "own") and re.match(rf"\s*{key}\s*[.=]", text)
        ]
        if owned:
            raise InputError(owned)
        with _located(tree, entry.changes, self._place(entry.encoding)):
            self.validate_recipe(entry.recipe)

    def _later(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, list[tuple[str, KeyPath]], KeyPath]]:
        """The evaluations after the one of training: an entry that has each, its changes of the recipe with
        the key of the study for each, and its own key. Options of another text are left out."""
        for name, lists in self.after_training.items():
            one = next((one for one in entries if name in (one.encoding, one.name)), None)
            for n, texts in enumerate(lists if one else ()):
                path = ("after_training", name, n)
                yield one, [(text, (*path, m)) for m, text in enumerate(texts)], path
        others: dict[KeyPath, Reading | During] = {
            ("readings", n): one for n, one in enumerate(self.readings)
        }
        if self.during:
            others["during",] = self.during
        for path, other in others.items():
            changes = [(f"evaluate.{key}={getattr(other, key)}", (key,)) for key in ("lengths", "protocols")]
            if isinstance(other, Reading):
                own = other.data == entries[0].recipe.data.name
                sets = enumerate(other.set)
                changes += [(text, ("set", n)) for n, text in sets if own or not text.startswith("data.")]
            yield entries[0], [(text, (*path, *key)) for text, key in changes], path

    def validate_recipe(self, recipe: Recipe) -> None:
        """Raises InputError for a recipe whose entry cannot be trained."""
        build_encoding(recipe)


def read_study(file: Path, kind: type[S] = Study) -> tuple[S, Tree]:
    """The study of a file, and the location of each of its keys.

    Raises:
        InputError: every key that is unknown or has a wrong value.
    """
    tree = _read_tree(file)
    values = {"name": re.sub(r"^\d+_", "", file.stem), **tree.values}
    try:
        return TypeAdapter(kind).validate_python(values), tree
    except ValidationError as error:
        keys = {(): [*_names(Study), "extends"], ("during",): _names(During)}
        if isinstance(readings := values.get("readings"), list):
            keys |= {("readings", n): _names(Reading) for n in range(len(readings))}
        found = explain_validation_error(error, values, keys)
        raise InputError(tree.problem(*one) for one in found.items()) from error


def _read_tree(file: Path, above: Sequence[Path] = ()) -> Tree:
    """A study file over the one that it extends, as a recipe is over its base; `above` extend this one."""
    tree = read_file(file)
    values = tree.values
    if isinstance(base := values.get("base"), str) and (file.parent / base).is_file():
        values["base"] = str(file.parent / base)
    if "grid" in values:  # `1e-3` stays a text, as an entry's name has it
        values["grid"] = yaml.safe_load(file.read_text())["grid"]
    if "extends" not in values:
        return tree
    extended = file.parent / str(values.pop("extends"))
    if not extended.is_file():
        raise InputError(tree.problem(("extends",), f"no file {extended}"))
    if extended.resolve() in (above := [*above, file.resolve()]):
        raise InputError(tree.problem(("extends",), f"{extended} extends this file"))
    below = _read_tree(extended, above)
    below.values.pop("name", None)
    below.lay_over(tree)
    return below


@contextmanager
def _located(tree: Tree, changes: Sequence[tuple[str, KeyPath]], other: KeyPath) -> Iterator[None]:
    """The errors of a recipe with these changes have the location of the key of the study that each is from,
    those that are in no change the location of `other`."""
    try:
        yield
    except InputError as error:
        places = {f"--set {shorten(text, 500)}": tree.location(path) for text, path in changes}
        places[""] = tree.location(other)
        where = [places.get(one.where or "") or one.where for one in error.problems]
        raise InputError(map(lambda one, at: replace(one, where=at), error.problems, where)) from error


def _names(kind: type) -> list[str]:
    return [one.name for one in fields(kind)]


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """The texts inside a value, and the key path of each."""
    if isinstance(value, str):
        yield path, value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _texts(inner, (*path, key))


@plain_dataclass(frozen=True)
class Entry:
    """One encoding of a study with one seed and setting, whether it is measured yet or not.

    Its run is stored in the table of the study, in the folder `out`.
    """

    study: Study
    encoding: str
    seed: int
    out: Path
    setting: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        pairs = (change.partition("=") for change in self.setting)
        values = [key.rpartition(".")[2] + value for key, _, value in pairs]
        return "_".join([self.encoding, *values, f"seed{self.seed}"])

    @property
    def path(self) -> str:
        """Of its run in the table."""
        return f"{self.study.name}_{self.name}"

    @property
    def table(self) -> Path:
        return self.out / f"{self.study.name}.parquet"

    @property
    def changes(self) -> list[tuple[str, KeyPath]]:
        return self.study.changes(self.encoding, self.seed, self.setting)

    @property
    def changes_after_training(self) -> list[list[str]]:
        given = self.study.after_training
        return [*given.get(self.encoding, ()), *given.get(self.name, ())]

    @cached_property
    def recipe(self) -> Recipe:
        return self.study.recipe(self.encoding, self.seed, self.setting)

    @property
    def run(self) -> RunInfo | None:
        """The stored run; None while it is missing."""
        return stored_runs(self.table).get(self.path)

    @property
    def is_finished(self) -> bool:
        return self.run is not None

    @property
    def seconds(self) -> float:
        """The time that it took."""
        return sum(self.run.origin["seconds"].values()) if self.run else 0.0

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Whether this process is to measure the entry: it is missing, and no other process works on it."""
        lock = FileLock(self.table.with_name(f".{self.path}.lock"))
        self.out.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield self.run is None
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


@cache
def _read_table(table: Path, changed: int) -> dict[str, RunInfo]:
    return {run.path: run for run in stored.read(table)}


def stored_runs(table: Path) -> dict[str, RunInfo]:
    """The runs of a table by path; none while it is missing."""
    return _read_table(table, table.stat().st_mtime_ns) if table.exists() else {}
