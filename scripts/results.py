"""The queue behind the leaderboard: train and evaluate every missing entry of every study, one after another.

    python scripts/results.py --list
    python scripts/results.py --study flip_flop --limit 3 --nice
    setsid python scripts/results.py --data DIR --nice        # all studies in order; DIR has the corpora
    zoo compare scripts/results/sort.parquet                  # the stored entries of a study

A study is a file of `scripts/studies/`: a base recipe with encodings, seeds, lengths and protocols. An entry
is one encoding with one seed: all encodings with seed 0 come first, then seed 1, and so on. A study with a
grid has an entry for each setting of the grid. One with readings evaluates each checkpoint on other data too;
`scripts/leaderboard.py` writes a page for each reading. When an entry is complete, it is stored in
`scripts/results/STUDY.parquet` (`zoo.comparison.stored`), and its run folder is deleted. Stored entries are
skipped: `--forget ENCODING_seedN` removes one, to measure it again.

SIGTERM or Ctrl-C stops the queue and drops the current entry, which the next start trains from its beginning.
Several queues may share a results folder: a lock keeps two of them off the same entry.

By default all is computed in float32 by the study's number of threads, uncompiled, so that machines with and
without bfloat16 give comparable numbers; a study may say otherwise. Each study is computed on the CPU or on a
GPU; its file says which. Without a GPU the queue passes over the studies that need one. The models are too
small for several threads, or for a whole GPU: start several queues. The modules of the zoo are imported once,
at the start. While its code is being changed, run it from a checkout of its own (`git worktree add`) with
`--out` in the first one.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from filelock import FileLock, Timeout

import zoo
from zoo import registry
from zoo.comparison import stored
from zoo.comparison.run_info import RunInfo
from zoo.comparison.runs import run_info
from zoo.console import duration
from zoo.data.text.datasets import default_root
from zoo.errors import InputError, RunError
from zoo.evaluation.evaluate import evaluate_runs
from zoo.evaluation.measurement import Measurement, Row, Units, merged
from zoo.evaluation.store import read_measurements
from zoo.launch.devices import processor
from zoo.recipe import Recipe, read_recipe, to_yaml_line
from zoo.runs.folder import LAST, kept_checkpoint

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ROOT / "scripts" / "studies"
OUT = ROOT / "scripts" / "results"
RUNS = Path("runs") / "results"
COMPUTED = ("trainer.devices=1", "logging=[csv]")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class During:
    """The evaluation of earlier checkpoints of a run."""

    steps: list[int]
    lengths: list[int]
    protocols: list[str]


@dataclass(frozen=True)
class Scored:
    """What the score of a task on the leaderboard counts.

    Attributes:
        reading: the name of the reading; empty: the measurements of the study itself.
        measure: empty: `token_accuracy` where answers have several tokens, else `accuracy`.
        lengths: empty: all above the trained one.
    """

    reading: str = ""
    measure: str = ""
    lengths: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Study:
    """The content of a YAML file.

    Attributes:
        base: the recipe, relative to the repository.
        encodings: for each seed `all`, or the names of encodings.
        lengths, protocols: of the evaluation.
        set: further `key=value` changes of the recipe.
        grid: for keys of the recipe the values to try: every entry is measured in every combination.
        options: for an encoding whose defaults are not enough, its options. With a `name` among them they
            are a further encoding of the study: that one with these options. So is a list: a combination.
        own: for an encoding, `key=value` changes of the recipe that it alone has.
        after_training: for an encoding, the `key=value` changes with which its checkpoint is evaluated again.
        readings: further evaluations of each checkpoint, on other data.
        during: further evaluations of the checkpoints at these steps, for a study whose recipe keeps them.
        precision, compile: of training and evaluation.
        threads: fixed, because sums depend on how they are split among threads.
        accelerator: `cpu` or `gpu`.
        leaderboard: whether it has a page and columns in the leaderboard. Otherwise it serves a question.
        scored: of a task, what its score counts.
        shown: the reading whose measurements its pages show (see `pages`); None: those of the study itself.
    """

    name: str
    base: str
    encodings: dict[int, str | list[str]]
    lengths: list[int]
    protocols: list[str]
    set: list[str] = field(default_factory=list)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    own: dict[str, list[str]] = field(default_factory=dict)
    after_training: dict[str, list[list[str]]] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    during: During | None = None
    precision: str = "32-true"
    compile: bool = False
    threads: int = 2
    accelerator: str = "cpu"
    leaderboard: bool = True
    scored: Scored = field(default_factory=Scored)
    shown: Reading | None = None

    @property
    def title(self) -> str:
        """The name of its page: that of the study, and of the reading that it shows."""
        return f"{self.name}_{self.shown.name}" if self.shown else self.name

    @property
    def data_shown(self) -> str | None:
        """The parameter `data` of the measurements that it shows."""
        return self.shown.name if self.shown else None

    @property
    def pages(self) -> list[Study]:
        """The study, and once more for each reading: the same entries, showing what that has measured."""
        return [self, *(
            replace(self, lengths=one.lengths, protocols=one.protocols, set=[*self.set, *one.set], shown=one)
            for one in self.readings
        )]  # fmt: skip

    @property
    def is_task(self) -> bool:
        """Whether it has answers that are right or wrong, in place of losses."""
        return self.protocols[0] == "accuracy"

    def recipe(self, encoding: str, seed: int, setting: Sequence[str] = ()) -> Recipe:
        """The resolved recipe of an entry; `setting` are `key=value` changes of the grid."""
        given = self.options.get(encoding, {})
        spec = given if isinstance(given, list) else {"name": encoding, **given}
        own = {
            "model.encoding": spec,
            "name": f"{encoding}_{self.name}_seed{seed}",
            "trainer.accelerator": self.accelerator,
            "seed": seed,
            "evaluate.lengths": self.lengths,
            "evaluate.protocols": self.protocols,
        }
        sets = [
            *self.set,
            *setting,
            *self.own.get(encoding, ()),
            *COMPUTED,
            f"trainer.precision={self.precision}",
            f"compile={str(self.compile).lower()}",
            *(f"{key}={to_yaml_line(value)}" for key, value in own.items()),
        ]
        return read_recipe(ROOT / self.base, sets)

    def entries(self, out: Path) -> list[Entry]:
        """All entries, seed by seed. Left out are encodings that the registry declares for the other kind of
        model, or for the evaluation of another encoding's checkpoints alone."""
        kind = self.recipe("none", 0).model.kind
        every = {name: registry.encodings.describe(name) for name in registry.encodings.names()}
        trained = [name for name, about in every.items() if getattr(about, kind) and not about.replaces]
        trained += [
            name for name, given in self.options.items() if "name" in given or isinstance(given, list)
        ]
        settings = itertools.product(*([f"{key}={v}" for v in values] for key, values in self.grid.items()))
        return [
            Entry(self, encoding, seed, out, setting)
            for (seed, wanted), setting in itertools.product(self.encodings.items(), settings)
            for encoding in trained
            if wanted == "all" or encoding in wanted
        ]


@dataclass(frozen=True)
class Entry:
    """One encoding of a study with one seed and setting, whether it is measured yet or not."""

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
    def run(self) -> RunInfo | None:
        """The stored run; None while it is missing."""
        return stored_runs(self.table).get(self.path)

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


def read_studies(folder: Path) -> list[Study]:
    """The studies of a folder. `NUMBER_NAME.yaml` gives their order and their names; `options.yaml` has the
    options of encodings in all of them, which a study may replace."""
    common = yaml.safe_load((folder / "options.yaml").read_text())
    studies = []
    for file in sorted(folder.glob("[0-9]*.yaml")):
        content = yaml.safe_load(file.read_text())
        content["options"] = common | content.get("options", {})
        content["during"] = During(**content["during"]) if "during" in content else None
        content["readings"] = [Reading(**one) for one in content.get("readings", ())]
        content["scored"] = Scored(**content.get("scored", {}))
        studies.append(Study(name=file.stem.partition("_")[2], **content))
    return studies


def work_through(entries: Sequence[Entry], limit: int | None) -> list[str]:
    """Measure the missing entries, at most `limit` of them. Returns the names of the entries that failed."""
    code, failed, started = code_state(), [], 0
    for entry in entries:
        if started == limit:
            break
        if entry.run:
            continue
        with entry.claimed() as mine:
            if not mine:
                continue
            started += 1
            title = f"{entry.study.name} {entry.name}"
            try:
                run = measured(entry, code)
            except (InputError, RunError) as error:
                failed.append(title)
                print(f"{title}: FAILED: {error}", flush=True)
                continue
            stored.add(entry.table, run)
            print(f"{title}: {duration(sum(run.origin['seconds'].values()))}", flush=True)
    return failed


def measured(entry: Entry, code: dict[str, Any]) -> RunInfo:
    """Train and evaluate an entry in a run folder, which is deleted in any case."""
    recipe = entry.study.recipe(entry.encoding, entry.seed, entry.setting)
    folder = RUNS / entry.study.name / entry.name
    shutil.rmtree(folder, ignore_errors=True)  # what a killed queue has left
    torch.set_num_threads(entry.study.threads)
    start = time.time()
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            zoo.fit(recipe, out=folder)
            for sets in entry.study.after_training.get(entry.encoding, ()):
                zoo.evaluate(folder, sets=sets)
            if during := entry.study.during:
                earlier = [kept_checkpoint(folder, step) for step in during.steps]
                zoo.evaluate(earlier, during.lengths, during.protocols)
            measurements = read_measurements(folder)
            for reading in entry.study.readings:
                measurements += read_again(folder, reading)
        trained = (folder / LAST).stat().st_mtime
        origin = {
            "study": entry.study.name,
            "encoding": entry.encoding,
            "seed": entry.seed,
            "code": code,
            "machine": machine(entry.study),
            "seconds": {"training": round(trained - start, 1), "evaluation": round(time.time() - trained, 1)},
        }
        measurements = tuple(map(rounded, measurements))
        about = {"path": entry.path, "recipe": recipe.as_dict(), "origin": origin}
        return replace(run_info(folder), measurements=measurements, **about)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_again(folder: Path, reading: Reading) -> list[Measurement]:
    """Evaluate a trained model once more. Its measurements name the reading, not the path of a corpus, which
    differs between machines."""
    corpus = default_root() / reading.data
    data = str(corpus) if corpus.exists() else reading.data
    # The targets of `fixed_targets` depend on the recipe's lengths.
    sets = [*reading.set, f"evaluate.lengths={reading.lengths}"]
    runs = evaluate_runs([folder], reading.lengths, reading.protocols, sets, data=data)
    found = merged(one for _, measured in runs for one in measured)
    return [one.model_copy(update={"parameters": {**one.parameters, "data": reading.name}}) for one in found]


def rounded(measurement: Measurement) -> Measurement:
    """With scores of six digits: the table of a study is a third as large."""

    def units(row: Row) -> Units | None:
        if not row.units or not row.units.scores:
            return row.units
        scores = [score and float(f"{score:.6g}") for score in row.units.scores]
        return row.units.model_copy(update={"scores": scores})

    rows = [row.model_copy(update={"units": units(row)}) if row.units else row for row in measurement.rows]
    return measurement.model_copy(update={"rows": rows})


@cache
def _read_table(table: Path, changed: int) -> dict[str, RunInfo]:
    return {run.path: run for run in stored.read(table)}


def stored_runs(table: Path) -> dict[str, RunInfo]:
    """The runs of a table by path; none while it is missing."""
    return _read_table(table, table.stat().st_mtime_ns) if table.exists() else {}


def print_list(study: Study, entries: Sequence[Entry]) -> None:
    """Print how much of a study is done, and the missing entries with an estimate of their time."""
    stored = [entry.run.origin for entry in entries if entry.run]
    missing = [entry for entry in entries if not entry.run]
    spent = [(one["encoding"], sum(one["seconds"].values())) for one in stored]

    def estimate(encoding: str) -> float:
        own = [seconds for name, seconds in spent if name == encoding] or [seconds for _, seconds in spent]
        return sum(own) / len(own)

    line = f"{study.name}: {len(stored)} of {len(entries)} done"
    if missing and spent:
        line += f", about {duration(sum(estimate(entry.encoding) for entry in missing))} left"
    print(line)
    for seed in study.encodings:
        names = [entry.encoding for entry in missing if entry.seed == seed]
        none = len(names) == sum(entry.seed == seed for entry in entries)
        if names:
            print(f"  seed {seed}: " + ("nothing yet" if none else f"missing: {', '.join(names)}"))
    commits = {one["code"]["commit"][:10] + "+" * one["code"]["modified"] for one in stored}
    if len(commits) > 1:
        print(f"  measured by different code: {', '.join(sorted(commits))}")


def code_state() -> dict[str, Any]:
    """The commit of the code that trains, and whether zoo/ differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    return {"commit": git("rev-parse", "HEAD"), "modified": bool(git("status", "--porcelain", "--", "zoo"))}


def machine(study: Study) -> dict[str, Any]:
    gpu = {"gpu": torch.cuda.get_device_name()} if study.accelerator == "gpu" else {}
    return {"processor": processor(), **gpu, "threads": study.threads, "torch": torch.__version__}


def stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments().parse_args(argv)
    studies = [one for one in read_studies(options.studies) if options.study in (None, one.name)]
    if not studies:
        sys.exit(f"no study {options.study!r} in {options.studies}")
    if options.data:
        os.environ["ZOO_DATA"] = str(options.data.resolve())  # the recipe that is stored names no folder
    by_study = {study.name: study.entries(options.out) for study in studies}
    entries = [entry for some in by_study.values() for entry in some]
    if options.list:
        for study in studies:
            print_list(study, by_study[study.name])
        return 0
    if options.forget:
        for entry in entries:
            if entry.name == options.forget and entry.run:
                every = stored_runs(entry.table).values()
                stored.write(entry.table, [run for run in every if run.path != entry.path])
        return 0
    if options.nice:
        os.nice(19)
        # Linux shares the cores among sessions, and nice acts within one. A session that `setsid` has made is
        # the queue's alone; another one is the user's, whose other commands must not give way.
        group = Path("/proc/self/autogroup")
        if group.exists() and os.getsid(0) == os.getpid():
            group.write_text("19")
    if not torch.cuda.is_available():
        for study in studies:
            if study.accelerator == "gpu":
                print(f"{study.name}: passed over, it needs a GPU", flush=True)
        entries = [entry for entry in entries if entry.study.accelerator == "cpu"]
    for kind in registry.KINDS.values():
        for name in kind.names():
            kind.load(name)
    importlib.import_module("zoo.training.fit")
    signal.signal(signal.SIGTERM, stop)
    try:
        failed = work_through(entries, options.limit)
    except KeyboardInterrupt:
        print("stopped; the current entry is dropped, and the next start trains it again", flush=True)
        return 130
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="show finished and missing entries")
    parser.add_argument("--study", metavar="NAME", help="one study (default: all, in order)")
    parser.add_argument("--limit", type=int, metavar="N", help="measure at most N entries")
    parser.add_argument("--nice", action="store_true", help="give way to other processes")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the corpora (default: ZOO_DATA or data/)")
    parser.add_argument("--forget", metavar="ENTRY", help="remove a stored entry, such as alibi_seed0")
    parser.add_argument("--studies", type=Path, metavar="DIR", default=STUDIES, help="the studies' files")
    parser.add_argument("--out", type=Path, metavar="DIR", default=OUT, help="where results are stored")
    return parser


if __name__ == "__main__":
    sys.exit(main())
