"""Small models over any encoding, a registry that forgets what a test adds to it, and runs of a few steps."""

import functools
import gc
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
import yaml
from browser import browser, open_page  # noqa: F401
from killed_runs import Forks
from tiny_recipes import MAX_INDEX, TEXT
from written_runs import edit, edit_rows, row_of, write_run  # noqa: F401

from zoo import registry
from zoo.contract.subject import HEADS, LAYERS, LENGTH, WIDTH, small_model, some_tokens
from zoo.encodings.base import Size
from zoo.encodings.parameters import representative
from zoo.recipe import resolve

ROOT = Path(__file__).parent.parent

# The tests run in as many processes as there are cores, on models too small to share one's work.
torch.set_num_threads(1)

# What a script starts in its background ignores Ctrl-C, and so would all that is started by these tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a command prints and sets on a machine with other work would depend on the tests beside this one.
os.getloadavg = lambda: (0.0, 0.0, 0.0)

# Looking through all modules and tests for garbage, again and again, takes a twentieth of the time.
gc.set_threshold(20_000, 50, 100)

# Each trainer looks through all installed packages for callbacks.
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)

PLUGINS = sorted((Path(__file__).parent / "encodings" / "plugins").glob("*.py"))


def pytest_addoption(parser):
    parser.addoption("--proofs", action="store_true", help="print what each encoding was checked against")
    parser.addoption("--file-times", action="store_true", help="print cases and seconds of each test file")


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--file-times"):
        _print_file_times(terminalreporter)
    if config.getoption("--proofs"):
        _print_proofs(terminalreporter)


def _print_file_times(terminalreporter):
    """Print the cases and the seconds of each test file, slowest first."""
    cases, seconds = Counter(), Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                seconds[file] += report.duration
                cases[file] += report.when == "call"
    terminalreporter.write_sep("=", "seconds and cases per test file")
    for file, spent in seconds.most_common():
        terminalreporter.write_line(f"{spent:8.1f} s {cases[file]:5d}  {file}")


def _print_proofs(terminalreporter):
    """Print the table of proofs, from the records of the fixture `agree`."""
    largest = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "proof":
                encoding, against, difference = value
                against = against.replace("|", "\\|")  # in a table it would end the cell
                largest[encoding, against] = max(difference, largest.get((encoding, against), 0.0))
    terminalreporter.write_sep("=", "proofs: encoding | checked against | largest difference")
    for (encoding, against), difference in sorted(largest.items()):
        terminalreporter.write_line(f"| {encoding} | {against} | {difference:.1e} |")


@pytest.fixture
def model_of():
    """A small model in evaluation mode around an encoding: those on which the laws are tried."""
    return small_model


@pytest.fixture(scope="session")
def spec_of():
    """An encoding as it comes; a wrapper around the first that it takes."""

    @functools.cache
    def spec_of(name):
        causal = registry.encodings.describe(name).decoder
        return representative(name, Size(WIDTH, HEADS, LAYERS, LENGTH, causal))

    return spec_of


@pytest.fixture
def size_of():
    """The size of the small model that an encoding is built for."""

    def size_of(**changes):
        fields = {"d_model": WIDTH, "num_heads": HEADS, "num_layers": LAYERS, "length": LENGTH, "layer": 0}
        return Size(**{**fields, "causal": True, **changes})

    return size_of


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _handlers_restored():
    """A command ignores signals while it reports its end; the next test must not."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


LAUNCHERS = {"zoo_command", "forks"}
"""Fixtures that start Python processes: the tests that use one are marked `launch`."""


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their marks
def pytest_collection_modifyitems(items):
    for item in items:
        if LAUNCHERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.launch)
    # First the longest file, which otherwise one process runs alone at the end.
    items.sort(key=lambda item: item.path.name != "test_readme.py")


@pytest.fixture(autouse=True, scope="module")
def _frozen():
    """A run collects garbage before its evaluation, and would look through all tests and modules."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _only_marked_tests_launch(request, monkeypatch):
    """A default test that starts a Python process fails, and none waits for the disk."""
    if request.node.get_closest_marker("launch") or request.node.get_closest_marker("slow"):
        return
    # A run of six steps waits for the disk thirty times.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    init = subprocess.Popen.__init__

    def checked_init(self, args, *rest, **options):
        command = [args] if isinstance(args, str | os.PathLike) else list(args)
        if any("python" in Path(str(part)).name for part in command[:1]):
            pytest.fail(f"starts {command}: mark the test `launch`")
        init(self, args, *rest, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", checked_init)


@pytest.fixture
def tokens():
    """Token ids [batch, length], always the same for the same length."""
    return some_tokens


@pytest.fixture(autouse=True)
def forgetful_registry():
    """Removes from the registry, after each test, the classes that the test registered."""
    before = {kind: set(kind.entries) for kind in registry.KINDS.values()}
    yield registry
    for kind, names in before.items():
        for name in [n for n, one in kind.entries.items() if not (one.builtin or n in names)]:
            del kind.entries[name]


@pytest.fixture
def plugins(forgetful_registry):
    """The plugins of `tests/encodings/plugins`, which use the hooks that the zoo's own do not."""
    for file in PLUGINS:
        forgetful_registry.load_plugin(file)
    return forgetful_registry


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """One token cache for all tests of a session."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def mapping(cache):
    """A recipe as plain data: `max_index` or `text`, or `masked` for an encoder on text."""

    def mapping(kind="max_index"):
        if kind == "max_index":
            return MAX_INDEX
        made = {**TEXT, "data": {**TEXT["data"], "cache": cache}}
        return {**made, "model": {**TEXT["model"], "kind": "encoder"}} if kind == "masked" else made

    return mapping


@pytest.fixture
def recipe(mapping):
    """A resolved recipe with changes: `recipe("text", "seed=1")`."""

    def recipe(kind="max_index", *sets):
        return resolve(mapping(kind), sets)

    return recipe


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def zoo_command(here, mapping, request):
    """Run `python -m zoo ...` in the working directory, where NAME.yaml holds the recipe of each kind."""
    for kind in ("max_index", "text", "masked"):
        made = {key: value for key, value in mapping(kind).items() if key != "name"}
        (here / f"{kind}.yaml").write_text(yaml.safe_dump(made, sort_keys=False))

    def run(*arguments, launcher=("-m", "zoo")):
        environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "LOCAL_RANK")}
        environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        environment |= {} if "gpu" in request.node.keywords else {"CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, *launcher, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)

    return run


@pytest.fixture(scope="session")
def forks():
    """Runs in forked processes, which halt where asked."""
    forks = Forks()
    yield forks
    forks.stop()


@pytest.fixture
def drawn():
    """The tables, curves and page of an evaluation are written."""


@pytest.fixture(autouse=True)
def _undrawn(request, monkeypatch):
    """Evaluations without these, which take ten times as long as to measure so little."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("zoo.reports.evaluate.write_results", lambda folder: None)


@pytest.fixture
def unmeasured(monkeypatch):
    """`fit` ends with the training: evaluation and figures take most of the time of so short a run."""
    monkeypatch.setattr("zoo.training.fit.finish", lambda run, source: ([], []))


@pytest.fixture(scope="session")
def made_run(tmp_path_factory):
    """A trained and evaluated run of the recipe `max_index`, which no test changes."""
    from zoo.training.fit import fit

    return fit(resolve(MAX_INDEX), out=tmp_path_factory.mktemp("made") / "tiny").folder


@pytest.fixture
def run_copy(made_run, here):
    """A copy of that run in runs/tiny."""
    return shutil.copytree(made_run, here / "runs" / "tiny").relative_to(here)


SBATCH = """\
#!{python}
import json
import sys
from pathlib import Path

calls = Path({calls!r})
job = 100 + (calls.read_text().count("\\n") if calls.exists() else 0)
with calls.open("a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
print(job)
"""
SRUN = """\
#!/bin/sh
[ "$1" = --kill-on-bad-exit=1 ] && shift
for rank in $(seq 0 $((${SLURM_NTASKS:-1} - 1))); do
    SLURM_PROCID=$rank SLURM_NODEID=$rank "$@" &
    pids="$pids $!"
done
for pid in $pids; do wait $pid || exit 1; done
"""


@pytest.fixture
def cluster(here, monkeypatch):
    """Stand-ins for SLURM's commands on the path, with a task a node; gives the arguments of `sbatch`."""
    tools = here / "tools"
    tools.mkdir()
    calls = here / "calls"
    sbatch = SBATCH.format(python=sys.executable, calls=str(calls))
    for name, content in {"sbatch": sbatch, "srun": SRUN}.items():
        (tools / name).write_text(content)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return lambda: [json.loads(line) for line in calls.read_text().splitlines()]
