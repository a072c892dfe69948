"""Progress: a bar on a terminal, a line from time to time in a log."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios

import pytest

from zoo import console
from zoo.console import duration, progress_bar
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


def test_a_terminal_gets_one_line_that_is_redrawn(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar(2, "about", "step") as bar:
        bar.update(2)
    drawn = capsys.readouterr().err
    assert "2/2" in drawn and drawn.count("\n") == 1


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (24, 0), (24, 80)])
def test_a_bar_shows_whatever_size_the_terminal_says_it_has(monkeypatch, rows, columns):
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with open(follower, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar(2, "about", "step") as bar:
            bar.update(2)
        drawn = ""
        # The output may arrive in pieces.
        while "2/2" not in drawn and select.select([leader], [], [], 10)[0]:
            drawn += os.read(leader, 4096).decode()
    os.close(leader)
    assert "about" in drawn and "2/2" in drawn
    assert max(map(len, drawn.replace("\r", "\n").splitlines())) <= (columns or console.COLUMNS)


def test_durations_are_short():
    assert [duration(s) for s in (0.31, 39.6, 720, 12600)] == ["0.3 s", "40 s", "12 min", "3.5 h"]
