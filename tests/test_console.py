"""Progress on a terminal and in a log."""

from zoo import console
from zoo.console import progress_bar
from zoo.contract.law import captured


def test_no_terminal_and_soon_done_prints_nothing(capsys):
    with progress_bar(3, "about", "step") as bar:
        for _ in range(3):
            bar.update()
    assert capsys.readouterr().err == ""


def test_no_terminal_gives_whole_lines(capsys, monkeypatch):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    with progress_bar(2, "about", "step") as bar:
        bar.update()
        bar.update()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2 and all(line.startswith("about: ") for line in lines)
    assert "2/2" in lines[-1]


def test_a_bar_is_not_part_of_captured_output(capsys, monkeypatch):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    with progress_bar(2, "about", "step") as bar, captured() as output:
        print("of a plugin")
        bar.update(2)
    assert output.getvalue() == "of a plugin\n" and "2/2" in capsys.readouterr().err
