"""The table of costs relative to `none`, measured on tiny models."""

import json

import pytest

import benchmark_encodings

TINY = {"width": 16, "layers": 1, "heads": 2, "length": 8, "batch": 1, "vocabulary": 16, "rounds": 2}
FLAGS = [part for key, value in TINY.items() for part in (f"--{key}", str(value))]


@pytest.fixture
def script(monkeypatch):
    """The script, which measures in this process instead of fresh ones."""

    def here(what, name, kind, options):
        setting = benchmark_encodings.setting_of(options)
        if what == "time":
            return benchmark_encodings.time_ratios(name, kind, setting, options.rounds)
        # None of 1 MiB and everything else of its name's length, so that the ratio is known.
        benchmark_encodings.peak_memory(name, kind, setting)
        return {"memory_mb": 2.0 if name == "none" else 2.0 * len(name)}

    monkeypatch.setattr(benchmark_encodings, "_apart", here)
    return benchmark_encodings


def test_every_encoding_asked_for_has_its_row(script, tmp_path, capsys):
    out = tmp_path / "results" / "costs"
    script.main(["--encodings", "rope,dape", "--out", str(out), *FLAGS])
    printed = capsys.readouterr().out
    stored = json.loads(out.with_suffix(".json").read_text())
    rope, dape = stored["rows"]
    assert (rope["label"], rope["parameters"], rope["memory"]) == ("rope", 0, 4.0)
    assert dape["label"] == "dape(alibi)" and dape["parameters"] > 0
    for row in (rope, dape):
        assert 0 < row["time_from"] <= row["time"] <= row["time_to"]
    assert {key: stored["setting"][key] for key in TINY} == TINY
    table = out.with_suffix(".md").read_text()
    assert table in printed and f"written: {out}.json, .md" in printed
    assert table.count("\n| ") == 2 and "width 16, 1 layers, 2 heads, length 8, batch 1" in table


def test_rows_of_the_same_setting_are_kept_and_others_are_not(script, tmp_path):
    out = tmp_path / "costs"

    def measured(*arguments):
        script.main(["--out", str(out), *FLAGS, *arguments])
        return [row["name"] for row in json.loads(out.with_suffix(".json").read_text())["rows"]]

    assert measured("--encodings", "none,t5") == ["none", "t5"]
    assert measured("--encodings", "none,alibi") == ["t5", "none", "alibi"]
    assert measured("--encodings", "none", "--batch", "2") == ["none"]
