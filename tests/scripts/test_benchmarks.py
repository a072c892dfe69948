"""Each benchmark measures a tiny model with the current code, and keeps rows of the same setting."""

import importlib
import json
import re

import pytest

import benchmark_encodings

SIZE = ["--width", "16", "--layers", "1", "--heads", "2", "--vocabulary", "16"]
RUNS = {
    "decoding": [*SIZE, "--rounds", "1", "--new", "3", "--prompt", "4", "--encodings", "rope,fox"],
    "encodings": [*SIZE, "--length", "8", "--batch", "1", "--rounds", "2", "--encodings", "rope,dape"],
    "memory": [*SIZE, "--trained", "8", "--lengths", "8,16", "--encodings", "dape,learned"],
}
SHOWN = {
    "decoding": r"(?m)^\| zoo fox \| 8 \| [\d,]+ \| \d",
    "encodings": r"(?m)^\| dape\(alibi\) \| \+?[\d.]+ .*\| \d",
    "memory": r"(?m)^\| dape\(alibi\) \| \d[^|]+ \| \d",
}


@pytest.mark.launch
@pytest.mark.parametrize("name", RUNS)
def test_a_benchmark_measures_the_current_code(name, tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    out = ["--out", str(tmp_path / "out")] if name in ("encodings", "memory") else []
    monkeypatch.setattr("sys.argv", [f"benchmark_{name}.py", *RUNS[name], *out])
    importlib.import_module(f"benchmark_{name}").main()
    printed = capsys.readouterr().out
    assert re.search(SHOWN[name], printed), printed


def test_rows_of_the_same_setting_are_kept_and_others_are_not(tmp_path):
    rows, file = [{"name": "none", "length": 8}, {"name": "t5", "length": 8}], tmp_path / "costs.json"
    file.write_text(json.dumps({"setting": {"width": 16}, "rows": rows}))
    assert benchmark_encodings.kept_rows(file, {"width": 16}, ["none"]) == rows[1:]
    assert benchmark_encodings.kept_rows(file, {"width": 32}, []) == []
