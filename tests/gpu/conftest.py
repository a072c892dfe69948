"""The items of scripts/gpu_check.py: which run, in which order and where; and the table of results."""

import gc
import json
import os
import time
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

from gpu_check import RESULTS, add_options

PART_1 = """environment laws/rope laws/path kernels/t5 kernels/fire kernels/dpb kernels/kerple kernels/fox
kernels/rope kernels/path run/resume run/evaluate run/out-of-memory compile/* training/*"""


def item_of(nodeid):
    """`kernels/t5` of `test_kernels[t5]`, `run/split-sequence` of `test_run_split_sequence`."""
    name = nodeid.rpartition("::test_")[2].removesuffix("]")
    return name.replace("[", "/") if "[" in name else name.replace("_", "/", 1).replace("_", "-")


class Table:
    """Writes the results of the items, among the rows of earlier checks."""

    def __init__(self, out, device):
        self.device, self.files, self.new = device, [Path(f"{out}.json"), Path(f"{out}.md")], set()
        known = json.loads(self.files[0].read_text())["results"] if self.files[0].exists() else []
        self.rows = {row["item"]: row for row in known}

    def pytest_runtest_logreport(self, report):
        item = item_of(report.nodeid)
        if (report.passed and report.when != "call") or item in self.new:
            return
        row = {"item": item, "result": report.outcome, "numbers": dict(report.user_properties),
               "seconds": round(report.duration, 1), "date": time.strftime("%Y-%m-%d")}  # fmt: skip
        if not report.passed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = report.longrepr[2] if report.skipped else crash.message if crash else report.longrepr
            row["message"] = str(reason)[-1000:]
        self.rows[item] = row
        self.new.add(item)
        lines = ["| item | result | date | seconds | numbers |", "|---|---|---|--:|---|"]
        lines += [self.line(row) for row in self.rows.values()]
        stored = {"device": self.device, "results": [*self.rows.values()]}
        for file, text in zip(self.files, (json.dumps(stored, indent=1), "\n".join(lines)), strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")

    def line(self, row):
        text = row.get("message") or ", ".join(
            f"{key} {number}" for key, number in row.get("numbers", {}).items()
        )
        cells = row["item"], row["result"], row.get("date", ""), row.get("seconds", ""), text
        return f"| {' | '.join(' '.join(str(cell).replace('|', '/').split()) for cell in cells)} |"


def pytest_addoption(parser):
    add_options(parser.addoption)


def pytest_configure(config):
    if (out := config.getoption("--out", None)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(out, config.getoption("--device")))


def pytest_collection_modifyitems(config, items):
    """Part 1 comes first; in each part the items that had not passed on any GPU before today."""
    stored = [json.loads(file.read_text()) for file in RESULTS.glob("*.json")]
    passed = {row["item"] for one in stored if one["device"] == "cuda" for row in one["results"]
              if row["result"] == "passed" and row.get("date") != time.strftime("%Y-%m-%d")}  # fmt: skip
    patterns, part = config.getoption("--only", "*").split(","), config.getoption("--part", None)
    ranks = {item: ("0", False) for item in items}
    for item in filter(lambda item: "gpu" in item.keywords, items):
        name = item_of(item.nodeid)
        first, wanted = (any(fnmatchcase(name, one) for one in some) for some in (PART_1.split(), patterns))
        ranks[item] = "1" if first else "2", name in passed
        if not wanted or part not in (None, ranks[item][0]):
            del ranks[item]
        if config.getoption("--device", "cuda") == "cuda" and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="there is no GPU that PyTorch can use"))
    items[:] = sorted(ranks, key=ranks.get)


@pytest.fixture
def device(request):
    return torch.device(request.config.getoption("--device", "cuda"))


@pytest.fixture
def numbers(request):
    """Notes numbers for the table: `numbers(tokens=3)`."""
    return lambda **found: request.node.user_properties.extend(found.items())


@pytest.fixture(autouse=True)
def _device_left_clean():
    torch.compiler.reset()
    yield
    gc.collect()
    try:
        torch.cuda.empty_cache()  # for the other processes
    except RuntimeError:  # an illegal access: nothing works in this process any more
        os._exit(1)
