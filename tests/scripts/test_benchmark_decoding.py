"""The benchmark of decoding: a row for every implementation, measured on tiny models."""

import importlib
import re

import pytest


def test_every_side_has_its_row(monkeypatch, capsys):
    pytest.importorskip("transformers")
    flags = ["--quick", "--layers", "1", "--new", "3", "--prompt", "4", "--encodings", "rope,fox"]
    monkeypatch.setattr("sys.argv", ["benchmark_decoding.py", *flags])
    importlib.import_module("benchmark_decoding").main()
    rows = re.findall(
        r"^\| (.+?) \| (\d+) \| ([\d,]+) \| ([\d.]+) \|$", capsys.readouterr().out, re.MULTILINE
    )
    sides = ["transformers, static cache", "transformers, dynamic cache", "zoo rope", "zoo fox"]
    assert [row[:2] for row in rows] == [(side, batch) for batch in ("1", "8") for side in sides]
    assert all(int(speed.replace(",", "")) > 0 for _, _, speed, _ in rows)
    assert [ratio for side, _, _, ratio in rows if "static" in side] == ["1.00", "1.00"]
