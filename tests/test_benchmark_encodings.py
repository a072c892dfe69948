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


def test_the_table_is_sorted_and_says_what_failed(script):
    setting = {**TINY, "precision": "32-true", "machine": "a machine", "torch": "2"}
    rows = [
        {"name": "dear", "kind": "decoder", "time": 2.0, "time_from": 1.9, "time_to": 2.25, "memory": 1.5,
         "parameters": 1234},
        {"name": "lost", "kind": "encoder", "note": "RuntimeError: no"},
        {"name": "cheap", "kind": "encoder", "time": 1.0, "time_from": 0.9, "time_to": 1.1, "memory": None,
         "parameters": 0},
    ]  # fmt: skip
    assert script.markdown(rows, setting).splitlines()[2:5] == [
        "| cheap (encoder) | 1.00 | 0.90 – 1.10 | – | 0 |",
        "| dear | 2.00 | 1.90 – 2.25 | 1.50 | 1,234 |",
        "| lost (encoder) | – | RuntimeError: no | – | – |",
    ]


def test_wrong_arguments_are_reported(script, capsys):
    for wrong in (["--encodings", "rop"], ["--rounds", "0"], ["--device", "tpu"]):
        with pytest.raises(SystemExit) as caught:
            script.main(wrong)
        assert caught.value.code == 2
        message = capsys.readouterr().err
        assert "rop" not in wrong or "did you mean 'rope'?" in message


@pytest.mark.slow
def test_in_processes_of_their_own(tmp_path):
    out = tmp_path / "costs"
    benchmark_encodings.main(["--encodings", "rope", "--out", str(out), *FLAGS])
    rows = json.loads(out.with_suffix(".json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["rope"] and "note" not in rows[0]
