"""Output on a terminal that only shows ASCII."""

import io
import sys

import pytest

from zoo.console import show_all


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_characters_that_a_stream_cannot_show_become_ascii(monkeypatch, errors):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", errors))
    show_all()
    print("0.5 ± 0.1 – “2×” ¹² é \udcff \U0001f600")
    sys.stdout.flush()
    assert written.getvalue() == (
        b"0.5 \\xb1 0.1 \\u2013 \\u201c2\\xd7\\u201d \\xb9\\xb2 \\xe9 \\udcff \\U0001f600\n"
    )
