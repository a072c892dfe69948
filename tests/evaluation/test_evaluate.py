"""`evaluate` on trained runs: rows, files, messages."""

import json
import math
import os
import shutil
from dataclasses import replace

import pytest
import torch
from tiny_recipes import TEXT

from zoo import registry
from zoo.errors import InputError, RunError
from zoo.evaluation import evaluate as evaluation
from zoo.evaluation import store as storage
from zoo.evaluation.store import read_measurements
from zoo.recipe import resolve
from zoo.reports import evaluate as reporting
from zoo.reports.evaluate import evaluate
from zoo.reports.fit import fit
from zoo.reports.report import build
from zoo.training import finish

BASE = {
    **TEXT, "name": "tiny", "optimizer": {"lr": 1e-3}, "trainer": {"max_steps": 2, "accelerator": "cpu"},
    "evaluate": {"max_tokens": 128}, "logging": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, cache):
    """A folder for each recipe that a test asks for, trained once."""
    folders = {}

    def trained(*sets):
        if sets not in folders:
            recipe = resolve(BASE, [f"data.cache={cache}", *sets])
            folders[sets] = fit(recipe, out=tmp_path_factory.mktemp("trained") / "run")
        return folders[sets]

    return trained


@pytest.fixture
def run(tmp_path, trained):
    """A copy of a folder trained for two steps and evaluated: `run("seed=1", name="first")`."""

    def run(*sets, name="run"):
        shutil.copytree(trained(*sets), tmp_path / name)
        return tmp_path / name

    return run


def stored(folder):
    return json.loads((folder / "evaluation" / "lengths.json").read_text())


def forget(folder):
    shutil.rmtree(folder / "evaluation")


def test_each_checkpoint_has_rows_of_its_own(run, tmp_path):
    folder = run("checkpoint.every_n_steps=1", "trainer.max_steps=2")
    evaluate([folder / "checkpoints" / "best.ckpt"], lengths=[16])
    checkpoints = [row["checkpoint"] for row in stored(folder)]
    assert checkpoints == ["checkpoints/best.ckpt"] + ["checkpoints/last.ckpt"] * 3


def test_a_length_that_cannot_be_measured_has_a_note_and_spares_the_others(run, capsys):
    folder = run("model.encoding=learned")
    rows = evaluate([folder], lengths=[8, 16, 17])
    assert [("note" in row) for row in rows] == [False, False, True]
    assert rows[2]["note"] == "the encoding ends at 16 tokens"
    assert "the encoding ends at 16 tokens" in capsys.readouterr().out
    other = run(name="other")
    beyond = evaluate([other], lengths=[16, 129, 10**6])
    assert "loss_nats" in beyond[0] and "evaluate.max_tokens=128" in beyond[1]["note"]
    assert "the validation text has only" in beyond[2]["note"]
    with pytest.raises(RunError, match="nothing could be measured: the validation text has only"):
        evaluate([other], lengths=[100_000], sets=["evaluate.max_tokens=100000"])


@pytest.fixture
def spoilt(monkeypatch):
    """Has a protocol do something first: `spoilt("sliding", lambda length: ...)`; what it gives, if anything,
    are the row's numbers."""

    def spoilt(protocol, act):
        class Spoilt(registry.protocols.load(protocol)):
            def plan(self, *given):
                return [replace(plan, lengths=[*map(spoil, plan.lengths)]) for plan in super().plan(*given)]

        def spoil(planned):
            if planned.score is None:
                return planned
            return replace(planned, score=lambda how: act(planned.length) or planned.score(how))

        known = registry.protocols.describe(protocol)
        monkeypatch.setitem(registry.protocols.entries, protocol, replace(known, cls=Spoilt))

    return spoilt


def greedy(length):
    if length == 32:
        raise torch.OutOfMemoryError("CUDA out of memory")
    if length == 64:
        torch.empty(1 << 60)  # what a CPU says


def test_without_lengths_fit_does_not_evaluate(here, recipe, capsys):
    folder = fit(recipe("max_index", "evaluate.lengths=[]"))
    assert read_measurements(folder) == [] and "done: tiny" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"evaluate\.lengths is empty; give --lengths"):
        evaluate([folder])
    assert [row["length"] for row in evaluate([folder], lengths=[8])] == [8]


def test_where_the_longest_window_is_too_much_the_next_is_read(run, spoilt):
    folder = run()
    spoilt("per_position", greedy)
    rows = evaluate([folder], lengths=[16, 24, 32, 64], protocols=["per_position"])
    assert [(row["length"], row["parameters"]["window"], "note" in row) for row in rows] == [
        (64, 64, True), (32, 32, True), (16, 24, False), (23, 24, False), (24, 24, False),
    ]  # fmt: skip


@pytest.mark.parametrize("end", [RuntimeError("a fault of ours"), KeyboardInterrupt()])
def test_what_was_measured_before_the_end_is_kept_and_reported(run, spoilt, capsys, end):
    folders = [run(name="first"), run(name="second")]
    for folder in folders:
        forget(folder)
    lengths = []

    def breaks(length):
        lengths.append(length)
        if len(lengths) == 5:
            raise end

    spoilt("sliding", breaks)
    capsys.readouterr()
    with pytest.raises(type(end)) as caught:
        evaluate(folders, lengths=[16, 32, 64], protocols=["nonoverlapping", "sliding"])
    if isinstance(end, KeyboardInterrupt):
        places = [folder / "evaluation" for folder in folders]
        kept_in = ", ".join(min(str(place), os.path.relpath(place), key=len) for place in places)
        # The first run is done with, the second is not.
        again = f"python -m zoo evaluate {folders[1]} --protocol nonoverlapping,sliding --lengths 16,32,64"
        assert str(caught.value) == (
            f"interrupted; what was measured is kept in {kept_in}; measure the rest: {again}"
        )
    kept = [[(row["protocol"], row["length"]) for row in stored(folder)] for folder in folders]
    assert kept[0] == [(p, length) for p in ("nonoverlapping", "sliding") for length in (16, 32, 64)]
    assert kept[1] == [*kept[0][:3], ("sliding", 16)]
    reports = capsys.readouterr().out.split(" by length\n")[1:]
    assert [text.count(": bits per byte by ") for text in reports] == [2, 2]


def test_results_are_stored_as_they_come(run, spoilt):
    folder, seen = run(), []
    forget(folder)

    def look(length):
        file = folder / "evaluation" / "lengths.json"
        seen.append([row["length"] for row in stored(folder)] if file.exists() else [])

    spoilt("nonoverlapping", look)
    evaluate([folder], lengths=[16, 32, 64])
    assert seen == [[], [16], [16, 32]]


def test_what_is_not_finite_is_null_in_the_file(run, spoilt):
    folder = run()
    given = {"tokens": 1, "loss_nats": 1000.0, "perplexity": math.inf, "bits_per_byte": math.nan}
    spoilt("nonoverlapping", lambda length: dict(given))
    evaluate([folder], lengths=[16, 32, 64])
    assert all(row["perplexity"] is None and row["bits_per_byte"] is None for row in stored(folder))
    assert "Infinity" not in (folder / "evaluation" / "lengths.json").read_text()


def test_a_row_says_what_was_measured_and_how(run):
    sets = [
        "evaluate.max_tokens=4000", "evaluate.stride=8", "evaluate.targets=9", "evaluate.lengths=[16, 32]",
    ]  # fmt: skip
    protocols = ["nonoverlapping", "sliding", "fixed_targets", "per_position"]
    rows = evaluate([run("data.documents=60")], protocols=protocols, sets=sets)
    reported = {row["protocol"]: row["parameters"] for row in rows}
    assert reported == {
        "nonoverlapping": {},
        "sliding": {"stride": 8},
        "fixed_targets": {"targets": 9, "longest": 32},
        "per_position": {"window": 32, "bins_per_octave": 2},
    }
    assert [(row["protocol"], row["length"]) for row in rows] == [
        *((protocol, length) for protocol in protocols[:3] for length in (16, 32)),
        *(("per_position", length) for length in (16, 23, 32)),
    ]
    for row in rows:
        measures = ["loss_nats", "perplexity", "bits_per_byte"]
        measures += ["word_perplexity"] * (row["protocol"] != "per_position")
        assert list(row)[:8] == [
            "run", "encoding", "checkpoint", "step", "seed", "protocol", "parameters", "length",
        ]  # fmt: skip
        assert row["documents"] > 1 and row["tokens"] > 0 and row["train_length"] == 16
        assert all(row[f"{m}_low"] <= row[m] <= row[f"{m}_high"] for m in measures)
        assert row["tokens_per_second"] > 0 and row["peak_memory_mb"] > 0
        assert len(row["targets"]) == 12
    assert [row["documents_left_out"] for row in rows if row["protocol"] == "fixed_targets"] == [0, 0]


def test_a_run_made_before_a_protocol_had_its_options_is_evaluated(run):
    folder = run()
    file = folder / "checkpoints" / "last.ckpt"
    content = torch.load(file, weights_only=True)
    for key in ("stride", "targets", "bins_per_octave"):
        del content["hyper_parameters"]["recipe"]["evaluate"][key]
    torch.save(content, file)
    rows = evaluate([folder], lengths=[16], protocols=["sliding"], sets=["data.workers=1"])
    assert rows[0]["parameters"] == {"stride": 0.5} and "loss_nats" in rows[0]


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


def test_wrong_protocols_are_reported_for_every_run_at_once(run):
    folders = [run(name="first"), run(name="second")]
    with pytest.raises(InputError) as error:
        evaluate(folders, protocols=["slidin", "nonoverlapping", "qwerty"])
    reported = [(problem.where, problem.message) for problem in error.value.problems]
    names = "nonoverlapping, sliding, fixed_targets, per_position, repeats, prompts"
    assert reported == [
        (str(folder), f"no protocol {wrong!r} for task 'language_modelling'; {hint}")
        for folder in folders
        for wrong, hint in (("slidin", "did you mean 'sliding'?"), ("qwerty", f"there are: {names}"))
    ]


def test_damaged_results_are_wrong_input(run, monkeypatch):
    folder = run()
    (file,) = (folder / "evaluation" / "measurements").iterdir()
    for damage in ("{", "[1]", '{"a": 1}'):
        file.write_text(damage)
        with monkeypatch.context() as patch, pytest.raises(InputError, match="move it away"):
            # Told before anything is measured, which would be lost.
            patch.setattr(evaluation, "measure", lambda *given, **more: pytest.fail("measured"))
            evaluate([folder], lengths=[16])


def test_what_cannot_be_stored_is_reported_all_the_same(run, monkeypatch, capsys):
    folder = run()
    capsys.readouterr()

    def full(*given):
        raise OSError(28, "No space left on device")

    for module in (reporting, storage):
        monkeypatch.setattr(module, "atomic_write", full)
    with pytest.raises(OSError, match="No space left"):
        evaluate([folder], lengths=[16])
    assert "16 (trained)" in capsys.readouterr().out


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
    # Each is a curve of its own.
    assert {row["encoding"] for row in rows} == {"rope", *changed}
    losses = {(row["encoding"], row["length"]): row["loss_nats"] for row in rows}
    assert len({losses[name, 32] for name in ("rope", *changed)}) == 3
    # Measured again, each replaces itself alone.
    evaluate([folder], lengths=[16, 32], sets=sets)
    evaluate([folder], lengths=[16, 32])
    assert len(stored(folder)) == len(rows)


def test_a_checkpoint_given_twice_is_measured_once(run):
    folder = run()
    last = folder / "checkpoints" / "last.ckpt"
    assert len(evaluate([last, folder, folder / "checkpoints"], lengths=[16])) == 1


def test_fit_scores_a_quarter_of_the_trained_tokens_unless_the_recipe_says_more(
    tmp_path, cache, monkeypatch, capsys
):
    monkeypatch.setattr(finish, "LEAST_TOKENS", 70)
    base = {**BASE, "evaluate": {"lengths": [16, 33]}}
    for sets, tokens in (
        (["trainer.max_steps=6"], 96),  # of 6 x 4 x 16
        (["trainer.max_steps=2"], 70),
        (["trainer.max_steps=2", "evaluate.lengths=[16, 80]"], 80),
        (["trainer.max_steps=2", "evaluate.max_tokens=110"], 110),
    ):
        folder = tmp_path / str(tokens)
        fit(resolve(base, [f"data.cache={cache}", *sets]), out=folder)
        assert [row["tokens"] for row in stored(folder)] == [tokens] * 2
        command = (
            f"scored {tokens} tokens at each length; for up to 262,144: python -m zoo evaluate {folder}\n"
        )
        assert (command in capsys.readouterr().out) == (tokens != 110)


def test_encodings_are_told_apart_over_the_blocks_of_one_text(run):
    folders = [run(name="alibi"), run("model.encoding=none", name="none")]
    assert all("blocks" in row.get("remark", "") for row in stored(folders[0]))
    report = build(folders)
    rows = report.summary.dropna(subset="difference")
    assert set(rows["interval"]) == {"95 % interval over text blocks"} and len(rows)
    assert (rows["difference_low"] < rows["difference"]).all() and set(rows["no_interval"]) == {""}
    assert any("consecutive blocks of" in caveat for caveat in report.caveats)
