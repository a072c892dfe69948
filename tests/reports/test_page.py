"""A page opens from disk with everything inside."""

import pandas as pd

from zoo.reports.page import PageSection, Picture, Table, TitledList, page


def test_every_text_is_escaped():
    bad = "<script>alert(1)</script>"
    table = Table(pd.DataFrame({bad: {bad: bad}}).rename_axis(bad, axis=1), bad, frozenset({(0, 0)}), (bad,))
    lists = TitledList(bad, (bad,)), TitledList(bad, (bad,), is_warning=True)
    parts = (bad, table, Picture(b"<svg/>", bad), *lists, [bad])
    html = page(bad, [PageSection(bad, parts)])
    assert bad not in html and html.count("&lt;script&gt;") == 17


def test_plotly_is_embedded_once_and_only_for_its_figures():
    import plotly.graph_objects as go

    figure = go.Figure(go.Scatter(x=[1, 2], y=[1, 2]))
    once = page("two", [PageSection("a", (figure, figure))])
    assert once.count("<script>/**\n* plotly.js") == 1 and once.count('class="plot"') == 2
    assert len(page("none", [PageSection("a", ("text",))])) < 10_000
