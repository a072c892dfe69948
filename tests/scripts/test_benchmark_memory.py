"""The table of time and memory of long sequences, measured on tiny models."""

import json
import re
import subprocess

import pytest

import benchmark_memory

TINY = ["--width", "16", "--layers", "1", "--heads", "2", "--trained", "8", "--vocabulary", "16"]


@pytest.fixture
def script(monkeypatch):
    """The script, which measures in this process instead of fresh ones."""
    choose = benchmark_memory.choose
    monkeypatch.setattr(choose, "BLOCK_ELEMENTS", choose.BLOCK_ELEMENTS)
    monkeypatch.setattr(benchmark_memory, "apart", benchmark_memory.forward)
    return benchmark_memory


def measured(script, out, *arguments):
    script.main([*TINY, "--out", str(out), *arguments])
    return {
        (row["name"], row["length"]): row for row in json.loads(out.with_suffix(".json").read_text())["rows"]
    }


def test_each_pair_has_its_row_and_what_cannot_be_is_reported(script, tmp_path, capsys):
    out = tmp_path / "deep" / "memory"
    rows = measured(script, out, "--encodings", "dape,learned", "--lengths", "8,16")
    assert rows["dape", 16]["label"] == "dape(alibi)"
    assert rows["dape", 16]["seconds"] > 0 and rows["dape", 16]["memory_mb"] >= 0
    assert rows["learned", 16]["note"] == "a sequence of 16 tokens, but the encoding ends at 8"
    table = out.with_suffix(".md").read_text()
    printed = capsys.readouterr().out
    assert table in printed and printed.endswith(f"written: {out}.json, .md\n")
    assert table.startswith("| encoding | 8 | 16 |\n") and re.search(r"^\| dape\(alibi\) \| \d", table, re.M)


def test_rows_of_the_same_setting_are_kept_and_others_are_not(script, tmp_path):
    out = tmp_path / "memory"
    measured(script, out, "--encodings", "none", "--lengths", "8,16")
    assert list(measured(script, out, "--encodings", "rope", "--lengths", "8")) == [
        ("none", 8), ("none", 16), ("rope", 8),
    ]  # fmt: skip
    for other in (["--block-elements", "99"], ["--precision", "bf16-mixed"]):
        assert list(measured(script, out, "--encodings", "rope", "--lengths", "8", *other)) == [("rope", 8)]


@pytest.mark.launch
def test_what_takes_too_long_or_fails_has_a_note(monkeypatch):
    options = benchmark_memory.arguments().parse_args([*TINY, "--limit", "0.01"])
    assert benchmark_memory.apart("none", 8, options)["note"] == "more than 0.01 s"

    def failed(*given, **more):
        return subprocess.CompletedProcess(given, 1, "", "a warning\nRuntimeError: a fault\n")

    monkeypatch.setattr(benchmark_memory.subprocess, "run", failed)
    assert benchmark_memory.apart("none", 8, options)["note"] == "RuntimeError: a fault"
