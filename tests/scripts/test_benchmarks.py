"""Each benchmark measures a tiny model with the current code."""

import importlib
import re

import pytest

SIZE = ["--width", "16", "--layers", "1", "--heads", "2", "--vocabulary", "16"]
RUNS = {
    "decoding": ["--quick", "--layers", "1", "--new", "3", "--prompt", "4", "--encodings", "rope,fox"],
    "encodings": [*SIZE, "--length", "8", "--batch", "1", "--rounds", "2", "--encodings", "rope,dape"],
    "memory": [*SIZE, "--trained", "8", "--lengths", "8,16", "--encodings", "dape,learned"],
    "restart": ["--tokens", "2e6", "--rounds", "1"],
}
SHOWN = {
    "decoding": r"(?m)^\| zoo fox \| 8 \| [\d,]+ \| \d",
    "encodings": r"(?m)^\| dape\(alibi\) \| \+?[\d.]+ .*\| \d",
    "memory": r"(?m)^\| dape\(alibi\) \| \d[^|]+ \| \d",
    "restart": r"takes \d+\.\d+",
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
