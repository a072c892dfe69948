"""The benchmark against other libraries: every model trains, at a tiny size."""

import functools
import importlib
import json
import math
import sys

import pytest

pytest.importorskip("transformers")
pytest.importorskip("x_transformers")

VOCABULARY = 64  # of the size tiny


@pytest.fixture
def script(monkeypatch):
    """The script as a module; its sides run in processes of their own, as always."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    module = importlib.import_module("benchmark_peers")
    # Once for all groups: the products are as large here as anywhere.
    monkeypatch.setattr(module, "matrix_rate", functools.cache(module.matrix_rate))
    yield module
    for name in [name for name in sys.modules if name.split(".")[0] in ("benchmark_peers", "peers")]:
        del sys.modules[name]  # it registers a dataset, which the registry forgets after the test


def measured(script, out, *arguments):
    script.main(["--size", "tiny", "--steps", "1000", "--rounds", "2", "--turn", "0.01", "--out", str(out),
                 *arguments])  # fmt: skip
    return json.loads(out.with_suffix(".json").read_text())


@pytest.mark.launch
def test_every_side_trains_and_has_its_row(script, tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- peers: begin -->\nold\n<!-- peers: end -->\nafter\n")
    only = ["--only", "none,rope,learned,alibi,t5", "--modes", "default,bf16", "--readme", str(readme)]
    rows = measured(script, tmp_path / "new" / "peers", *only)
    names = {(row["library"], row["encoding"]) for row in rows}
    assert names == {
        *script.BUILDERS,
        *(("zoo", name) for name in ("none", "rope", "learned", "alibi", "t5")),
    }
    assert len(rows) == 2 * len(names)
    table, short = (tmp_path / "new" / "peers.md").read_text(), readme.read_text()
    for row in rows:
        about = {key: value for key, value in row.items() if key != "size"}
        assert "note" not in row, about
        # Its first loss is that of a model that knows nothing; T5 starts from wide embeddings.
        assert abs(row["loss"] - math.log(VOCABULARY)) < (1.0 if row["encoding"] == "t5" else 0.3), about
        assert 0 < row["share_from"] <= row["share"] <= row["share_to"] and row["milliseconds"] > 0
        assert row["matrix_rate"] > 0 and row["peak_memory_mb"] > 0
        assert f"| {row['encoding']} | {row['library']} |" in table
        assert f"| {row['encoding']} | {row['library']} |" in short
    assert short.startswith("before\n<!-- peers: begin -->\n") and short.endswith(
        "<!-- peers: end -->\nafter\n"
    )
    assert "old" not in short and "the zoo's default to the fastest peer's default" in short
    assert capsys.readouterr().out.splitlines()[-1] == f"written: {tmp_path / 'new' / 'peers'}.json, .md"


def test_sides_of_an_encoding_have_as_many_parameters(script):
    """To 3 %, at the sizes that are measured."""
    import torch

    from peers.sides import Side, recipe_of
    from zoo.tasks import build_task

    for name in ("small", "medium"):
        size, counts = script.SIZES[name], {}
        for (_, encoding), builder in script.BUILDERS.items():
            with torch.device("meta"):
                model, _ = builder(size, True)
            counts.setdefault(encoding, []).append(sum(p.numel() for p in model.parameters()))
        for encoding, others in counts.items():
            recipe = recipe_of(Side("zoo", encoding), size, torch.device("cpu"), 1)
            own = sum(p.numel() for p in build_task(recipe, size.vocabulary).model.parameters())
            for count in others:
                assert abs(count / own - 1) < 0.03, (name, encoding, own, others)
