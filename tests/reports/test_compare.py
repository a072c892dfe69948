"""`zoo compare` as it is called: on runs that were written for it, and on two that were trained."""

import csv

from zoo import cli


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
    (["compare", "runs/a", "runs/b", "--out", "file"], "file: file exists"),
    (["compare", "runs/a", "runs/b", "--out", "file/below"], "file/below: not a directory"),
    (["compare", "runs/a", "runs/b", "--panels", "nonoverlap"], "did you mean 'nonoverlapping'?"),
)


def test_wrong_input_is_reported_and_exit_2(write_run, tmp_path, capsys):
    write_run("a"), write_run("b", "rope")
    (tmp_path / "file").write_text("")
    for arguments, message in WRONG:
        assert cli.main(arguments) == 2
        assert message in capsys.readouterr().err
