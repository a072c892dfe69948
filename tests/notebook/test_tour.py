"""The notebook in docs/ runs from its first cell to its last, in a kernel of its own."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOUR = ROOT / "docs" / "tour.ipynb"


def outputs(notebook, source):
    """The outputs of the cell that holds a text, all kinds of media together."""
    (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and source in cell.source)
    return {kind: data for one in cell.outputs for kind, data in one.get("data", {}).items()}, cell.outputs


@pytest.mark.slow
@pytest.mark.launch
def test_the_tour_runs(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(TOUR, as_version=4)
    stored = [cell.get("outputs") for cell in notebook.cells if cell.cell_type == "code"]
    assert all(stored), "it is committed with outputs"
    (recipe,) = (cell for cell in notebook.cells if '"max_steps": 300' in cell.source)
    recipe.source = recipe.source.replace('"max_steps": 300', '"max_steps": 50')
    client.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    _, refusal = outputs(notebook, "alibbi")
    assert "did you mean 'alibi'" in "".join(one.text for one in refusal if one.name == "stdout")
    shown, _ = outputs(notebook, "comparison = zoo.compare")
    assert "<img" in shown["text/html"] and "Verdict" in shown["text/html"]
    shown, _ = outputs(notebook, "curves.tail")
    assert "train/loss" in shown["text/html"]
    _, trained = outputs(notebook, "sinusoidal = zoo.fit")
    assert "tour: 100%" in "".join(one.text for one in trained if one.name == "stderr")
    for source in ("model.attention", "bias_table", 'curves["train/loss"]'):
        assert "image/png" in outputs(notebook, source)[0], source
    assert {folder.name for folder in (tmp_path / "runs").iterdir()} == {"tour", "tour-2"}
