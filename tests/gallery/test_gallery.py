"""The gallery: pages made from the registry, without broken links, that load nothing from elsewhere."""

import contextlib
import html
import io
import json
import re
import runpy
from pathlib import Path

import pytest
from built_site import broken_links, loaded_from_elsewhere, pages_of, words_of

from zoo import registry
from zoo.cli import main
from zoo.gallery import results
from zoo.gallery.encoding_page import spec_of
from zoo.gallery.markdown import explanation, formula
from zoo.gallery.pictures import figure_of

ROOT = Path(__file__).parents[2]
PLUGIN = '''
import torch
import zoo


@zoo.register("gallery.root")
class Root(zoo.Encoding):
    """Scores fall with the root of distance.

    The slope is *one number* for all_of_them | heads, as in `a|b`.

    Options:
        slope: how fast they fall, per root of
            a token.
    """

    family, relative = "bias", True
    paper = "Nobody 2026 (arXiv:2601.00001)"
    formula = r"b_{ij} = -s \\sqrt{|i-j|}"

    def __init__(self, size: zoo.Size, *, slope: float = 0.5):
        super().__init__(size)
        self.slope = torch.nn.Parameter(torch.tensor(slope))

    def bias(self, head, q, k):
        return -self.slope * (q - k).abs().float().sqrt()
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    file = tmp_path_factory.mktemp("plugin") / "my_gallery.py"
    file.write_text(PLUGIN)
    yield file
    for known in (registry.encodings.added, registry.encodings.classes):
        known.pop("gallery.root", None)


@pytest.fixture(scope="module")
def site(plugin, tmp_path_factory):
    """The gallery of a plugin and two of the zoo's encodings, of which one wraps another."""
    out = tmp_path_factory.mktemp("gallery") / "site"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["gallery", str(plugin), "alibi", "dape", "--out", str(out)]) == 0
    assert said.getvalue().splitlines()[-1] == f"gallery: {out / 'index.html'}"
    return out


@pytest.mark.slow
def test_pages_of_a_plugin_and_some_encodings(site, plugin, open_page):
    pages = pages_of(site)
    assert not [*broken_links(site)] and not [*loaded_from_elsewhere(site)]
    mine = pages[Path("encodings/gallery.root.html")].text
    assert "<math" in mine and "<msqrt>" in mine
    assert "how fast they fall, per root of a token." in mine and "<code>0.5</code>" in mine
    assert "https://arxiv.org/abs/2601.00001" in mine
    assert f"plugins=[{plugin.name}]" in words_of(mine)
    assert "one number* for all_of_them | heads, as in" in words_of(mine)
    alibi = words_of(pages[Path("encodings/alibi.html")].text)
    assert "transformers build_alibi_tensor (BLOOM)" in alibi and "1.9e-06" in alibi
    rows = json.loads((ROOT / "scripts/results/costs.json").read_text())["rows"]
    (row,) = (row for row in rows if row["name"] == "alibi")
    assert f"{row['time']:.2f}" in alibi
    assert "1.633" in alibi and "8,192" in alibi  # as scripts/results/wikitext2/compare.csv has it
    assert "{name: dape, of: alibi}" in words_of(pages[Path("encodings/dape.html")].text)
    for name in ("alibi", "dape", "gallery.root"):
        drawn = {panel.key: panel for panel in figure_of(spec_of(registry.encodings.describe(name))).panels}
        page = pages[Path("encodings", f"{name}.html")]
        shown = [load for load in page.loads if "/pictures/" in load]
        assert shown == [f"../pictures/{name}/{key}.svg" for key in drawn] and len(drawn) > 1
        assert all(panel.caption in html.unescape(page.text) for panel in drawn.values())
    index = pages[Path("index.html")]
    for name in registry.encodings.names():
        assert f">{name}<" in html.unescape(index.text), name
    built = {link for link in index.links if link.startswith("encodings/")}
    assert built == {f"encodings/{name}.html" for name in ("alibi", "dape", "gallery.root")}
    picture = open_page(site / "encodings" / "gallery.root.html").locator("img[src*='/pictures/']").first
    assert picture.evaluate("one => one.naturalWidth") > 100


@pytest.mark.slow
def test_a_broken_link_fails_the_build_and_leaves_the_previous_gallery(site, monkeypatch, capsys):
    before = (site / "index.html").read_text()
    monkeypatch.setattr("zoo.gallery.encoding_page.page", lambda *given: "# none\n\n[gone](nowhere.md)\n")
    assert main(["gallery", "none", "--out", str(site)]) == 1
    assert "nowhere.md" in capsys.readouterr().err
    assert (site / "index.html").read_text() == before
    assert [file.name for file in site.parent.iterdir() if file.name.startswith(".")] == []


def test_wrong_input_is_reported_at_once(tmp_path, capsys):
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert main(["gallery", "alibbi", str(tmp_path / "empty.py"), "rop"]) == 2
    errors = capsys.readouterr().err
    assert "did you mean 'alibi'?" in errors and "did you mean 'rope'?" in errors and "empty.py:1: " in errors
    (tmp_path / "thesis.txt").write_text("years of work")
    for out in (tmp_path, tmp_path / "thesis.txt"):
        assert main(["gallery", "none", "--out", str(out)]) == 2
        assert str(out) in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_every_formula_becomes_mathml():
    for name in registry.encodings.names():
        shown = formula(registry.encodings.describe(name).formula)
        assert shown.count("<math ") >= 1 and "\\" not in words_of(shown), name
    with pytest.raises(ValueError, match=r"no formula in LaTeX: .*frac"):
        formula(r"\frac{1}{")


def test_every_option_of_an_encoding_is_explained():
    for name in registry.encodings.names():
        one = registry.encodings.describe(name)
        if one.builtin:
            assert [option.name for option in one.options if not one.help.get(option.name)] == [], name
        assert "Options:" not in explanation(one)


def test_every_number_of_the_guide_was_measured():
    """Numbers with three decimals stand in a stored result."""
    guide = (ROOT / "docs" / "choose.md").read_text()
    stored = {
        f"{abs(float(row[column])):.3f}"
        for folder in results.RESULTS.glob("*/compare.csv")
        for row in results._rows(folder)
        for column in ("mean", "low", "high", "difference", "difference_low", "difference_high")
        if row[column]
    }
    earlier = {"1.642"}  # of a second seed, as README.md has it
    assert "1.642" in (ROOT / "README.md").read_text()
    numbers = set(re.findall(r"\b\d\.\d{3}\b", guide))
    assert len(numbers) > 8 and numbers <= stored | earlier, numbers - stored - earlier


def test_tables_and_code_in_the_docs_are_up_to_date():
    """`python scripts/fill_docs.py` writes them."""
    fill_docs = runpy.run_path(str(ROOT / "scripts" / "fill_docs.py"))
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text()
        assert fill_docs["filled"](text) == text, page.name
