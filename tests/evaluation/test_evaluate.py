"""The length sweep over trained runs: its rows, its files, its words."""

import json
import math

import pytest
import torch

from zoo.errors import InputError
from zoo.evaluation import evaluate as sweep
from zoo.evaluation.evaluate import evaluate, rows_as_text, summary_line
from zoo.evaluation.plot import plot_lengths
from zoo.recipe import resolve
from zoo.training.fit import fit

BASE = {
    "name": "tiny",
    "model": {"kind": "decoder", "encoding": "alibi", "d_model": 16, "num_layers": 1, "num_heads": 2},
    "data": {
        "name": "sample", "sequence_length": 16, "batch_size": 4, "vocab_size": 300,
        "documents": 12, "words": 60,
    },
    "optimizer": {"lr": 1e-3},
    "trainer": {"max_steps": 2, "accelerator": "cpu"},
    "evaluate": {"max_tokens": 128},
    "logging": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(tmp_path, cache):
    """Train for two steps; gives the run folder."""

    def run(*sets, name="run"):
        recipe = resolve(BASE, [f"data.cache={cache}", f"name={name}", *sets])
        return fit(recipe, out=tmp_path / name)

    return run


def stored(folder):
    return json.loads((folder / "evaluation" / "lengths.json").read_text())


def test_rows_are_merged_with_those_before(run):
    folder = run()
    assert [row["length"] for row in stored(folder)] == [16, 32, 64]
    before = {row["length"]: row for row in stored(folder)}
    evaluate([folder], lengths=[24, 32])
    rows = stored(folder)
    assert [row["length"] for row in rows] == [16, 24, 32, 64]
    after = {row["length"]: row for row in rows}
    assert after[16] == before[16] and after[64] == before[64]
    assert after[32]["loss_nats"] == before[32]["loss_nats"]  # measured again, and the same
    assert (folder / "evaluation" / "lengths.png").read_bytes().startswith(b"\x89PNG")


def test_each_checkpoint_has_rows_of_its_own(run, tmp_path):
    folder = run("checkpoint.every_n_steps=1", "trainer.max_steps=2")
    evaluate([folder / "checkpoints" / "best.ckpt"], lengths=[16])
    checkpoints = [row["checkpoint"] for row in stored(folder)]
    assert checkpoints == ["checkpoints/best.ckpt"] + ["checkpoints/last.ckpt"] * 3


def test_what_an_earlier_step_gave_goes(run):
    folder = run()
    file = folder / "evaluation" / "lengths.json"
    old = [{**row, "step": 1} for row in stored(folder)]
    file.write_text(json.dumps(old))
    evaluate([folder], lengths=[32])
    assert [(row["length"], row["step"]) for row in stored(folder)] == [(32, 2)]


def test_a_length_that_cannot_be_measured_has_a_note_and_spares_the_others(run, capsys):
    folder = run("model.encoding=learned")
    rows = evaluate([folder], lengths=[8, 16, 17])
    assert [("note" in row) for row in rows] == [False, False, True]
    assert rows[2]["note"] == "the encoding ends at 16 tokens"
    assert "the encoding ends at 16 tokens" in capsys.readouterr().out
    beyond = evaluate([run(name="other")], lengths=[16, 10**6])
    assert "loss_nats" in beyond[0] and "the validation text has only" in beyond[1]["note"]


def test_the_longest_length_that_the_text_can_fill_is_measured(run):
    from zoo.data import open_data
    from zoo.runs.checkpoint import load_task

    folder = run()
    num_tokens = len(open_data(load_task(folder).recipe).stream("valid"))
    rows = evaluate([folder], lengths=[num_tokens - 1, num_tokens])
    assert rows[0]["tokens"] == num_tokens - 1 and "note" in rows[1]


def test_running_out_of_memory_at_one_length_spares_the_others(run, monkeypatch):
    folder = run()
    real = sweep.PROTOCOLS["nonoverlapping"]

    def greedy(task, source, setting):
        if setting.length == 32:
            raise torch.OutOfMemoryError("CUDA out of memory")
        if setting.length == 64:
            torch.empty(1 << 60)  # what a CPU says
        return real(task, source, setting)

    monkeypatch.setitem(sweep.PROTOCOLS, "nonoverlapping", greedy)
    rows = evaluate([folder], lengths=[16, 32, 64])
    assert "loss_nats" in rows[0]
    assert all("out of memory" in row["note"] for row in rows[1:])


def test_a_fault_is_not_taken_for_a_lack_of_memory(run, monkeypatch):
    folder = run()

    def broken(*given):
        raise RuntimeError("a fault of ours")

    monkeypatch.setitem(sweep.PROTOCOLS, "nonoverlapping", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        evaluate([folder])


def test_what_is_not_finite_is_null_in_the_file(run, monkeypatch):
    folder = run()
    given = {"tokens": 1, "loss_nats": 1000.0, "perplexity": math.inf, "bits_per_byte": math.nan}
    monkeypatch.setitem(sweep.PROTOCOLS, "nonoverlapping", lambda *_: dict(given))
    evaluate([folder], lengths=[16, 32, 64])
    assert all(row["perplexity"] is None and row["bits_per_byte"] is None for row in stored(folder))
    assert "Infinity" not in (folder / "evaluation" / "lengths.json").read_text()


def test_several_runs_are_told_apart_in_one_table(run, capsys):
    folders = [run(name="first"), run("seed=1", name="second")]
    capsys.readouterr()
    rows = evaluate(folders, lengths=[16])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["run", "first", "second"]
    assert [row["seed"] for row in rows] == [0, 1]
    assert [row["run"] for folder in folders for row in stored(folder) if row["length"] == 16] == [
        "first",
        "second",
    ]


def test_another_tokenizer_is_wrong_input(tmp_path, cache):
    texts = {}
    for name, letters in (("one", "abcdefgh"), ("two", "stuvwxyz")):
        texts[name] = tmp_path / name
        texts[name].mkdir()
        for number in range(4):
            words = [letters[i % 8] + letters[(i // 8 + number) % 8] for i in range(300)]
            (texts[name] / f"{number}.txt").write_text(" ".join(words))
    data = {"name": "text", "root": str(texts["one"]), "cache": str(cache), "vocab_size": 280}
    mapping = {**BASE, "data": {**data, "sequence_length": 16, "batch_size": 4}}
    folder = fit(resolve(mapping), out=tmp_path / "run")
    with pytest.raises(InputError, match="another tokenizer"):
        evaluate([folder], lengths=[16], sets=[f"data.root={texts['two']}"])


def test_wrong_protocols_and_damaged_results_are_wrong_input(run, monkeypatch):
    folder = run()
    with pytest.raises(InputError, match=r"no protocol 'acuracy' .* there are: nonoverlapping"):
        evaluate([folder], protocols=["acuracy"])
    for damage in ("{", "[1]", '{"a": 1}'):
        (folder / "evaluation" / "lengths.json").write_text(damage)
        with monkeypatch.context() as patch, pytest.raises(InputError, match="move it away"):
            # Told before anything is measured, which would be lost.
            patch.setattr(sweep, "evaluate_task", lambda *given: pytest.fail("measured"))
            evaluate([folder], lengths=[16])


def test_what_cannot_be_stored_is_told_all_the_same(run, monkeypatch, capsys):
    folder = run()
    capsys.readouterr()

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sweep, "write_whole", full)
    with pytest.raises(OSError, match="No space left"):
        evaluate([folder], lengths=[16])
    assert "16 trained" in capsys.readouterr().out


def test_fit_and_evaluate_measure_the_same(run):
    folder = run("model.dropout=0.1", "trainer.precision=bf16-true")
    before = {row["length"]: row["loss_nats"] for row in stored(folder)}
    after = {row["length"]: row["loss_nats"] for row in evaluate([folder])}
    assert before == after


def test_memory_is_that_of_the_length(run):
    folder = run()
    held = torch.ones(60_000_000)  # 240 MB that are gone before the sweep
    del held
    first, _ = evaluate([folder], lengths=[16, 32])
    big = torch.ones(60_000_000)
    second, _ = evaluate([folder], lengths=[16, 32])
    assert second["peak_memory_mb"] - first["peak_memory_mb"] > 150
    assert big.sum() > 0 and first["tokens_per_second"] > 0


def test_a_changed_encoding_has_rows_of_its_own(run, capsys):
    folder = run("model.encoding=rope")
    plain = stored(folder)
    assert all("changed" not in row for row in plain)
    sets = ["model.encoding.scaling=linear", "model.encoding.factor=4"]
    evaluate([folder], lengths=[16, 32], sets=sets)
    evaluate([folder], lengths=[32], sets=["model.encoding={name: self_extend, window: 4}"])
    assert "rope scaling=linear factor=4" in capsys.readouterr().out
    rows = stored(folder)
    assert [row for row in rows if "changed" not in row] == plain
    changed = {row["encoding"]: row["changed"] for row in rows if "changed" in row}
    assert changed == {
        "rope scaling=linear factor=4": {"model.encoding.scaling": "linear", "model.encoding.factor": 4.0},
        "self_extend window=4": {
            "model.encoding.name": "self_extend", "model.encoding.window": 4, "model.encoding.group": 8,
        },
    }  # fmt: skip
    losses = {(row["encoding"], row["length"]): row["loss_nats"] for row in rows}
    assert len({losses[name, 32] for name in ("rope", *changed)}) == 3
    # Measured again, each replaces itself alone.
    evaluate([folder], lengths=[16, 32], sets=sets)
    evaluate([folder], lengths=[16, 32])
    assert len(stored(folder)) == len(rows)


def test_a_changed_encoding_is_a_line_of_its_own(run, monkeypatch):
    folder, drawn = run("model.encoding=rope"), []
    from matplotlib.axes import Axes

    real = Axes.legend
    monkeypatch.setattr(
        Axes, "legend", lambda self, **more: (drawn.append(self.get_legend_handles_labels()[1]), real(self))
    )
    evaluate([folder], lengths=[16, 32], sets=["model.encoding={name: rerope, window: 4}"])
    assert drawn == [["rerope window=4", "rope"]]


ROW = {"run": "r", "encoding": "rope", "train_length": 16, "seed": 0}


def test_the_summary_takes_what_there_is():
    note = {**ROW, "length": 16, "note": "the encoding ends at 8 tokens"}
    right = {**ROW, "length": 32, "accuracy": 0.5}
    assert summary_line([note, {**note, "length": 64}, right]) == (
        "accuracy: 0.500 at 32 (2x); not at 16, 64: the encoding ends at 8 tokens"
    )
    assert summary_line([note]) == "perplexity: not measured; not at 16: the encoding ends at 8 tokens"
    assert summary_line([{**ROW, "length": 24, "perplexity": None}]) == "perplexity: not finite at 24 (1.5x)"


def test_a_table_of_nothing_but_notes():
    text = rows_as_text([{**ROW, "length": 16, "note": "too long"}])
    assert text.splitlines()[1].split() == ["rope", "16", "trained", "too", "long"]


@pytest.mark.parametrize("rows", [
    [],
    [{**ROW, "length": 16, "note": "too long"}],
    [{**ROW, "length": 16, "accuracy": None}],
])  # fmt: skip
def test_nothing_measured_is_nothing_drawn(tmp_path, rows):
    plot_lengths(rows, tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()


@pytest.mark.parametrize("measure", ["accuracy", "bits_per_byte", "loss_nats"])
def test_failed_and_missing_points_do_not_stop_a_plot(tmp_path, measure):
    rows = [
        {**ROW, "length": 16, measure: 0.5},
        {**ROW, "length": 16, measure: 0.6, "seed": 1},
        {**ROW, "length": 32, measure: 900.0 if measure != "accuracy" else 0.1},
        {**ROW, "length": 64, measure: None},
        {**ROW, "encoding": "learned", "length": 32, "note": "too long"},
    ]
    plot_lengths(rows, tmp_path / "deep" / "plot.png", title="a title")
    assert (tmp_path / "deep" / "plot.png").stat().st_size > 1000
