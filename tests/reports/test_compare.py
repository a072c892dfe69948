"""`zoo compare` as it is called: on runs that were written for it, and on two that were trained."""

import csv
import html
import re
import shlex
import statistics

import pytest

from zoo import cli
from zoo.reports.evaluate import evaluate
from zoo.reports.fit import fit


def test_two_runs_are_compared(write_run, tmp_path, capsys):
    runs = [str(write_run("a")), str(write_run("b", "rope"))]
    assert cli.main(["compare", *runs]) == 0
    printed = capsys.readouterr()
    assert "2 encodings on sample, trained at 16 tokens" in printed.out and printed.err == ""
    for name in ("compare.md", "compare.csv", "compare.png", "compare.svg", "compare.pdf", "index.html"):
        assert f"comparison/{name}" in printed.out and (tmp_path / "comparison" / name).is_file()
    assert "Costs" in printed.out and "\033" not in printed.out
    chosen = ["--lengths", "32", "--panels", "nonoverlapping"]
    assert cli.main(["compare", *runs, *chosen, "--out", "here/it/is"]) == 0
    assert "--panels nonoverlapping" in (tmp_path / "here/it/is/index.html").read_text()
    assert {row["length"] for row in csv.DictReader((tmp_path / "here/it/is/compare.csv").open())} == {"32"}


def test_runs_that_are_not_comparable_are_refused_without_force(write_run, tmp_path, capsys):
    runs = [str(write_run("a")), str(write_run("b", "rope", recipe={"optimizer.lr": 0.5}))]
    assert cli.main(["compare", *runs]) == 2
    printed = capsys.readouterr()
    assert "recipe optimizer.lr: 0.001 in runs/a; 0.5 in runs/b" in printed.err and printed.out == ""
    assert not (tmp_path / "comparison").exists()
    assert cli.main(["compare", *runs, "--force"]) == 0
    assert "NOT COMPARABLE" in capsys.readouterr().out
    assert cli.main(["compare", "--diff", *runs]) == 0
    assert "not comparable" in capsys.readouterr().out


WRONG = (
    (["compare"], "compare which runs?"),
    (["compare", "runs/a", "--diff", "runs/a", "runs/b"], "--diff takes two runs"),
    (["compare", "runs/nosuch"], "runs/nosuch: no such run folder"),
    (["compare", "runs"], "the runs in it: runs/a, runs/b"),
    (["compare", "runs/a", "runs/b", "--protocol", "slidin"], "did you mean 'sliding'?"),
    (["compare", "runs/a", "runs/b", "--out", "runs"], "runs holds other files"),
    (["compare", "runs/a", "runs/b", "--panels", "nonoverlap"], "did you mean 'nonoverlapping'?"),
)


def test_wrong_input_is_reported_and_exit_2(write_run, capsys):
    write_run("a"), write_run("b", "rope")
    for arguments, message in WRONG:
        assert cli.main(arguments) == 2
        printed = capsys.readouterr()
        assert message in printed.err and printed.out == ""


@pytest.mark.slow
def test_runs_that_were_trained_are_compared(here, recipe, capsys):
    runs = [
        fit(recipe("text", f"model.encoding={encoding}", f"seed={seed}", f"name={encoding}_{seed}"))
        for encoding, seed in (("alibi", 0), ("alibi", 1), ("learned", 0))
    ]
    rows = evaluate(runs, [16, 32], ["nonoverlapping", "sliding"])
    capsys.readouterr()
    assert cli.main(["compare", *map(str, runs), "--lengths", "16,32"]) == 0
    text = capsys.readouterr().out
    assert not any(
        said in text for said in ("NOT COMPARABLE", "not verified", "not evaluated by", "left out")
    )
    assert "the encoding ends at 16 tokens" in text

    found = {
        (row["encoding"], row["protocol"], row["length"]): row
        for row in csv.DictReader((here / "comparison" / "compare.csv").open())
    }
    kinds = [(p, length) for p in ("nonoverlapping", "sliding") for length in (16, 32)]
    assert found.keys() == {(e, p, str(length)) for e in ("alibi", "learned") for p, length in kinds}
    for protocol, length in kinds:
        cell = found["alibi", protocol, str(length)]
        values = [
            row["bits_per_byte"]
            for row in rows
            if (row["encoding"], row["protocol"], row["length"]) == ("alibi", protocol, length)
        ]
        assert float(cell["mean"]) == pytest.approx(statistics.mean(values), rel=1e-12)
        assert float(cell["sd"]) == pytest.approx(statistics.stdev(values), rel=1e-9)
        assert cell["comparable"] == "yes" and float(cell["training_tokens_per_second"]) > 0


def test_the_command_on_the_page_makes_the_same_page_again(write_run, tmp_path, capsys):
    write_run("a"), write_run("b", "rope", values={16: 1.0, 64: 1.0}).rename("runs/b c")
    given = ["--protocol", "nonoverlapping", "--lengths", "16", "--out", "o o", "--force"]
    assert cli.main(["compare", "runs/a", "runs/b c", *given]) == 0
    page = (tmp_path / "o o" / "index.html").read_text()
    command = shlex.split(html.unescape(re.search(r"made by:</p>\n<pre><code>(.*?)<", page)[1]))
    assert command == ["python", "-m", "zoo", "compare", "runs/a", "runs/b c", *given]
    (tmp_path / "o o" / "index.html").unlink()
    assert cli.main(command[3:]) == 0
    again = (tmp_path / "o o" / "index.html").read_text()
    names = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # of the elements of plots
    assert re.sub(names, "", again) == re.sub(names, "", page)
