"""The queue behind the leaderboard: train and evaluate every missing entry of every study, one after another.

    python scripts/results.py --list
    python scripts/results.py --study flip_flop --limit 3 --nice
    setsid python scripts/results.py --data DIR --nice        # all studies in order; DIR has the corpora
    python scripts/results.py --study flip_flop --unpack DIR  # run folders for `zoo compare DIR/*`

A study is a file of `scripts/studies/`: a base recipe with encodings, seeds, lengths and protocols. An entry
is one encoding with one seed: all encodings with seed 0 come first, then seed 1, and so on. A study with a
grid has an entry for each setting of the grid. One with readings evaluates each checkpoint on other data too;
`scripts/leaderboard.py` writes a page for each reading. When an entry is complete, it is stored as
`scripts/results/STUDY/measurements/ENCODING_seedN.json`, and its run folder is deleted. Stored entries are
skipped: delete a file to measure the entry again.

SIGTERM or Ctrl-C stops the queue and drops the current entry, which the next start trains from its beginning.
Several queues may share a results folder: a lock keeps two of them off the same entry.

Everything is computed in float32 by the study's number of threads, uncompiled, so that machines with and
without bfloat16 give comparable numbers. Each study is computed on the CPU or on a GPU; its file says which.
Without a GPU the queue passes over the studies that need one. The models are too small for several threads,
or for a whole GPU: start several queues. The modules of the zoo are imported once, at the start. While its
code is being changed, run it from a checkout of its own (`git worktree add`) with `--out` in the first one.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from filelock import FileLock, Timeout

import zoo
from zoo import registry
from zoo.console import duration
from zoo.data.text.datasets import default_root
from zoo.errors import InputError, RunError
from zoo.evaluation.evaluate import evaluate_runs
from zoo.evaluation.measurement import Measurement, merged
from zoo.evaluation.store import read_measurements, store
from zoo.files import atomic_write
from zoo.launch.devices import processor
from zoo.recipe import Recipe, dump, read_recipe, resolve, to_yaml_line
from zoo.runs.card import read_card, write_card
from zoo.runs.folder import LAST, METRICS, RECIPE

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ROOT / "scripts" / "studies"
OUT = ROOT / "scripts" / "results"
RUNS = Path("runs") / "results"
COMPUTED = ("trainer.devices=1", "trainer.precision=32-true", "compile=false", "logging=[csv]")


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
    def file(self) -> Path:
        return self.out / self.study.name / "measurements" / f"{self.name}.json"

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Whether this process is to measure the entry: it is missing, and no other process works on it."""
        lock = FileLock(self.file.with_name(f".{self.name}.lock"))
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield not self.file.exists()
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
        if entry.file.exists():
            continue
        with entry.claimed() as mine:
            if not mine:
                continue
            started += 1
            title = f"{entry.study.name} {entry.name}"
            try:
                content = measured(entry, code)
            except (InputError, RunError) as error:
                failed.append(title)
                print(f"{title}: FAILED: {error}", flush=True)
                continue
            atomic_write(entry.file, json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n")
            print(f"{title}: {duration(sum(content['seconds'].values()))}", flush=True)
    return failed


def measured(entry: Entry, code: dict[str, Any]) -> dict[str, Any]:
    """Train and evaluate an entry in a run folder, which is deleted in any case.

    Returns: the content of its file.
    """
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
            measurements = read_measurements(folder)
            for reading in entry.study.readings:
                measurements += read_again(folder, reading)
        trained = (folder / LAST).stat().st_mtime
        return {
            "study": entry.study.name,
            "encoding": entry.encoding,
            "seed": entry.seed,
            "code": code,
            "machine": machine(entry.study),
            "seconds": {"training": round(trained - start, 1), "evaluation": round(time.time() - trained, 1)},
            "recipe": recipe.as_dict(),
            "card": read_card(folder),
            "metrics": (folder / METRICS).read_text(),
            "measurements": [packed(one) for one in measurements],
        }
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


def packed(measurement: Measurement) -> dict[str, Any]:
    """A measurement as JSON; the scores of examples are a text of 0 and 1, or numbers of six digits."""
    plain = json.loads(measurement.model_dump_json(exclude_unset=True))
    for row in plain["rows"]:
        scores = (row.get("units") or {}).get("scores")
        if scores and set(scores) <= {0, 1}:
            row["units"]["scores"] = "".join(map(str, scores))
        elif scores:
            row["units"]["scores"] = [score and float(f"{score:.6g}") for score in scores]
    return plain


def unpacked(plain: dict[str, Any]) -> Measurement:
    """The measurement that `packed` has written."""
    rows = [dict(row) for row in plain["rows"]]
    for row in rows:
        if isinstance((row.get("units") or {}).get("scores"), str):
            row["units"] = {"scores": list(map(int, row["units"]["scores"]))}
    return Measurement.model_validate({**plain, "rows": rows})


def unpack(
    entries: Sequence[Entry],
    folder: Path,
    changed: bool | Mapping[str, Any] = True,
    shown_alone: bool = False,
) -> None:
    """Write the stored entries as run folders without checkpoints, which `zoo compare` reads.

    Args:
        changed: also the evaluations of a changed model: all, or those with these changes.
        shown_alone: of the study and its readings, only the one that is shown.
    """
    for entry in entries:
        if entry.file.exists():
            content, run = json.loads(entry.file.read_text()), folder / f"{entry.study.name}_{entry.name}"
            kept = [
                one for one in content["measurements"]
                if (changed is True or one["changed"] in ({}, changed))
                and (not shown_alone or one["parameters"].get("data") == entry.study.data_shown)
            ]  # fmt: skip
            store(run, [unpacked(one) for one in kept])
            atomic_write(run / RECIPE, dump(resolve(content["recipe"])))
            write_card(run, content["card"])
            atomic_write(run / METRICS, content["metrics"])


def print_list(study: Study, entries: Sequence[Entry]) -> None:
    """Print how much of a study is done, and the missing entries with an estimate of their time."""
    stored = [json.loads(entry.file.read_text()) for entry in entries if entry.file.exists()]
    missing = [entry for entry in entries if not entry.file.exists()]
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
    if options.unpack:
        unpack(entries, options.unpack)
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
    parser.add_argument("--unpack", type=Path, metavar="DIR", help="write stored entries as run folders")
    parser.add_argument("--studies", type=Path, metavar="DIR", default=STUDIES, help="the studies' files")
    parser.add_argument("--out", type=Path, metavar="DIR", default=OUT, help="where results are stored")
    return parser


if __name__ == "__main__":
    sys.exit(main())
