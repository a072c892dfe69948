"""The length sweep over trained runs: its rows, its files, its words."""

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from zoo import registry
from zoo.errors import InputError, RunError
from zoo.evaluation import measure
from zoo.evaluation import store as storage
from zoo.evaluation.store import read_measurements
from zoo.recipe import resolve
from zoo.reports import evaluate as command
from zoo.reports import run_report
from zoo.reports.evaluate import evaluate
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
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def run(tmp_path, cache):
    """Train for two steps; gives the run folder."""

    def run(*sets, name="run"):
        recipe = resolve(BASE, [f"data.cache={cache}", f"name={name}", *sets])
        return fit(recipe, out=tmp_path / name)

    return run


def stored(folder):
    return json.loads((folder / "evaluation" / "lengths.json").read_text())


def forget(folder):
    shutil.rmtree(folder / "evaluation")


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
    (old,) = read_measurements(folder)
    forget(folder)
    storage.store(folder, [old.model_copy(update={"step": 1})])
    evaluate([folder], lengths=[32])
    assert [(row["length"], row["step"]) for row in stored(folder)] == [(32, 2)]


def test_a_length_that_cannot_be_measured_has_a_note_and_spares_the_others(run, capsys):
    folder = run("model.encoding=learned")
    rows = evaluate([folder], lengths=[8, 16, 17])
    assert [("note" in row) for row in rows] == [False, False, True]
    assert rows[2]["note"] == "the encoding ends at 16 tokens"
    assert "the encoding ends at 16 tokens" in capsys.readouterr().out
    beyond = evaluate([run(name="other")], lengths=[16, 129, 10**6])
    assert "loss_nats" in beyond[0] and "evaluate.max_tokens=128" in beyond[1]["note"]
    assert "the validation text has only" in beyond[2]["note"]


def test_the_longest_length_that_the_text_can_fill_is_measured(run):
    from zoo.data import open_data
    from zoo.runs.load import load_task

    folder = run("evaluate.max_tokens=100000")
    num_tokens = len(open_data(load_task(folder).recipe).stream("valid"))
    rows = evaluate([folder], lengths=[num_tokens - 1, num_tokens])
    assert rows[0]["tokens"] == num_tokens - 1 and "note" in rows[1]


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

        monkeypatch.setitem(registry.protocols.classes, protocol, Spoilt)

    return spoilt


def greedy(length):
    if length == 32:
        raise torch.OutOfMemoryError("CUDA out of memory")
    if length == 64:
        torch.empty(1 << 60)  # what a CPU says


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["nonoverlapping", "sliding", "fixed_targets"])
def test_running_out_of_memory_at_one_length_spares_the_others(run, spoilt, protocol):
    folder = run("evaluate.max_tokens=2000")
    spoilt(protocol, greedy)
    rows = evaluate([folder], lengths=[16, 32, 64], protocols=[protocol])
    assert "loss_nats" in rows[0]
    assert all("needs more memory than the" in row["note"] and row["length"] in (32, 64) for row in rows[1:])


def test_where_the_longest_window_is_too_much_the_next_is_read(run, spoilt):
    folder = run()
    spoilt("per_position", greedy)
    rows = evaluate([folder], lengths=[16, 24, 32, 64], protocols=["per_position"])
    assert [(row["length"], row["parameters"]["window"], "note" in row) for row in rows] == [
        (64, 64, True), (32, 32, True), (16, 24, False), (23, 24, False), (24, 24, False),
    ]  # fmt: skip


def test_a_fault_is_not_taken_for_a_lack_of_memory(run, spoilt):
    def broken(length):
        raise RuntimeError("a fault of ours")

    folder = run()
    spoilt("nonoverlapping", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        evaluate([folder])


@pytest.mark.slow
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
    assert [text.count("nonoverlapping: ") + text.count("sliding (stride 0.5): ") for text in reports] == [
        2,
        2,
    ]


def test_results_are_stored_as_they_come(run, spoilt, monkeypatch):
    folder, seen = run(), []
    forget(folder)
    monkeypatch.setattr(measure, "SECONDS_AT_RISK", 0.0)

    def look(length):
        file = folder / "evaluation" / "lengths.json"
        seen.append([row["length"] for row in stored(folder)] if file.exists() else [])

    spoilt("nonoverlapping", look)
    evaluate([folder], lengths=[16, 32, 64])
    assert seen == [[], [16], [16, 32]]


@pytest.mark.slow
def test_one_bar_shows_the_work_of_all_protocols_and_lengths(run, spoilt, monkeypatch):
    bars = []

    class Bar:
        def __init__(self, total, *given, **more):
            self.total, self.done = total, 0
            bars.append((self, total))

        def __enter__(self):
            return self

        def __exit__(self, *given):
            pass

        def update(self, tokens):
            self.done += tokens

        def set_description(self, text, refresh):
            pass

    monkeypatch.setattr(measure, "progress_bar", Bar)
    folder = run("model.encoding=learned")
    everything = ["nonoverlapping", "sliding", "fixed_targets", "per_position"]
    evaluate([folder], lengths=[8, 16, 32], protocols=everything)
    assert len(bars) == 2  # fit's and this one
    assert all(bar.done == bar.total == before > 0 for bar, before in bars)
    # Without what a length that does not fit would still have read.
    folder = run("model.encoding=alibi", name="other")
    for protocol in ("nonoverlapping", "per_position"):
        spoilt(protocol, greedy)
    evaluate([folder], lengths=[16, 32, 64], protocols=everything)
    assert bars[-1][0].done == bars[-1][0].total != bars[-1][1]


def test_what_is_not_finite_is_null_in_the_file(run, spoilt):
    folder = run()
    given = {"tokens": 1, "loss_nats": 1000.0, "perplexity": math.inf, "bits_per_byte": math.nan}
    spoilt("nonoverlapping", lambda length: dict(given))
    evaluate([folder], lengths=[16, 32, 64])
    assert all(row["perplexity"] is None and row["bits_per_byte"] is None for row in stored(folder))
    assert "Infinity" not in (folder / "evaluation" / "lengths.json").read_text()


def test_a_row_says_what_was_measured_and_how(run):
    sets = ["evaluate.max_tokens=4000", "evaluate.stride=8", "evaluate.targets=9", "data.documents=60"]
    folder = run(*sets, "evaluate.lengths=[16, 32]")
    protocols = ["nonoverlapping", "sliding", "fixed_targets", "per_position"]
    rows = evaluate([folder], lengths=[16, 32], protocols=protocols)
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
    measures = ("loss_nats", "perplexity", "bits_per_byte", "word_perplexity")
    for row in rows:
        assert list(row)[:8] == [
            "run", "encoding", "checkpoint", "step", "seed", "protocol", "parameters", "length",
        ]  # fmt: skip
        assert row["documents"] > 1 and row["tokens"] > 0 and row["train_length"] == 16
        assert all(row[f"{m}_low"] <= row[m] <= row[f"{m}_high"] for m in measures)
        assert row["tokens_per_second"] > 0 and row["peak_memory_mb"] > 0
        assert len(row["targets"]) == 12
    assert [row["documents_left_out"] for row in rows if row["protocol"] == "fixed_targets"] == [0, 0]


@pytest.mark.launch
def test_two_processes_give_the_rows_of_one(run, zoo_command):
    sets = ["evaluate.max_tokens=2000", "evaluate.batch_tokens=100", "data.documents=60"]
    folder = run(*sets, "evaluate.lengths=[16, 40]")
    protocols = ["nonoverlapping", "sliding", "fixed_targets", "per_position"]
    alone = evaluate([folder], lengths=[16, 40], protocols=protocols)
    forget(folder)
    done = zoo_command(
        "evaluate", folder, "--lengths", "16,40", "--protocol", ",".join(protocols), "--devices", "2"
    )
    assert done.returncode == 0, done.stderr
    together = stored(folder)
    assert len(together) == len(alone) == 10
    by_place = {(row["protocol"], row["length"]): row for row in together}
    for row in alone:
        other = by_place[row["protocol"], row["length"]]
        assert row.keys() == other.keys()
        for name, value in row.items():
            if name not in ("tokens_per_second", "peak_memory_mb"):
                # To the last digit: the same batches are read, and added up in the same order.
                assert other[name] == value, name


def test_a_run_made_before_a_protocol_had_its_options_is_evaluated(run):
    folder = run()
    file = folder / "checkpoints" / "last.ckpt"
    content = torch.load(file, weights_only=True)
    for key in ("stride", "targets", "bins_per_octave"):
        del content["hyper_parameters"]["recipe"]["evaluate"][key]
    torch.save(content, file)
    rows = evaluate([folder], lengths=[16], protocols=["sliding"], sets=["data.workers=1"])
    assert rows[0]["parameters"] == {"stride": 0.5} and "loss_nats" in rows[0]


@pytest.mark.slow
def test_several_runs_have_a_report_each(run, capsys):
    folders = [run(name="first"), run("seed=1", name="second")]
    capsys.readouterr()
    rows = evaluate(folders, lengths=[16])
    reported = capsys.readouterr().out
    assert "first" in reported and "second" in reported
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


@pytest.mark.slow
def test_wrong_protocols_are_reported_for_every_run_at_once(run):
    folders = [run(name="first"), run(name="second")]
    with pytest.raises(InputError) as error:
        evaluate(folders, protocols=["slidin", "nonoverlapping", "qwerty"])
    reported = [(problem.where, problem.message) for problem in error.value.problems]
    names = "nonoverlapping, sliding, fixed_targets, per_position, prompts"
    assert reported == [
        (str(folder), f"no protocol {wrong!r} for task 'language_modelling'; {hint}")
        for folder in folders
        for wrong, hint in (("slidin", "did you mean 'sliding'?"), ("qwerty", f"there are: {names}"))
    ]


def test_a_stride_that_leaves_gaps_is_reported_before_anything_is_measured(run, monkeypatch):
    folders = [run(name="first"), run(name="second")]
    monkeypatch.setattr(command, "measure", lambda *given, **more: pytest.fail("measured"))
    with pytest.raises(InputError, match=r"evaluate.stride: a stride of 32 tokens") as error:
        evaluate(folders, lengths=[16, 64], protocols=["sliding"], sets=["evaluate.stride=32"])
    assert len(error.value.problems) == 1


def test_damaged_results_are_wrong_input(run, monkeypatch):
    folder = run()
    (file,) = (folder / "evaluation" / "measurements").iterdir()
    for damage in ("{", "[1]", '{"a": 1}'):
        file.write_text(damage)
        with monkeypatch.context() as patch, pytest.raises(InputError, match="move it away"):
            # Told before anything is measured, which would be lost.
            patch.setattr(command, "measure", lambda *given, **more: pytest.fail("measured"))
            evaluate([folder], lengths=[16])


def test_what_cannot_be_stored_is_reported_all_the_same(run, monkeypatch, capsys):
    folder = run()
    capsys.readouterr()

    def full(*given):
        raise OSError(28, "No space left on device")

    for module in (run_report, storage):
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


def test_folders_that_take_no_results_are_reported_before_anything_is_measured(run, monkeypatch):
    folders = [run(name="first"), run(name="second")]
    shutil.rmtree(folders[0] / "evaluation")
    (folders[0] / "evaluation").write_text("")
    (folders[1] / "evaluation" / ".lock").unlink(missing_ok=True)
    (folders[1] / "evaluation" / ".lock").symlink_to("elsewhere")
    monkeypatch.setattr(command, "measure", lambda *given, **more: pytest.fail("measured"))
    with pytest.raises(InputError) as error:
        evaluate(folders, protocols=["qwerty"])
    places = [problem.where for problem in error.value.problems]
    files = [folders[0] / "evaluation", folders[1] / "evaluation" / ".lock"]
    assert places == [str(files[0]), str(folders[0]), str(files[1]), str(folders[1])]


def test_runs_of_one_name_are_told_apart_by_their_folders(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folders = [run("name=same", f"optimizer.lr={lr}", name=f"lr{lr}") for lr in (0.02, 0.01)]
    capsys.readouterr()
    rows = evaluate([Path("lr0.02"), folders[1] / "checkpoints" / "last.ckpt"], lengths=[16])
    titles = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" by length")]
    assert titles == ["lr0.02 by length", "lr0.01 by length"]
    assert [row["run"] for row in [*rows, *stored(folders[0])]] == ["same"] * 5


def test_a_checkpoint_given_twice_is_measured_once(run):
    folder = run()
    last = folder / "checkpoints" / "last.ckpt"
    assert len(evaluate([last, folder, folder / "checkpoints"], lengths=[16])) == 1


def test_a_length_beyond_the_data_is_a_note_and_changes_nothing_else(run, capsys):
    folder = run("data.documents=60", "evaluate.max_tokens=100000")
    before = stored(folder)
    evaluate([folder], lengths=[16, 100_000], protocols=["nonoverlapping", "per_position"])
    shown = capsys.readouterr().out
    assert "the validation text has only" in shown and "100000" in shown
    after = [row for row in stored(folder) if row["protocol"] == "nonoverlapping"]
    assert [("note" in row, row["length"]) for row in after] == [
        (False, 16), (False, 32), (False, 64), (True, 100_000),
    ]  # fmt: skip
    assert [row["loss_nats"] for row in after[:3]] == [row["loss_nats"] for row in before]
    assert len({row["targets"] for row in after}) == 1
    with pytest.raises(RunError, match="nothing could be measured: the validation text has only"):
        evaluate([folder], lengths=[100_000])


def test_other_targets_are_another_measurement(run):
    folder = run()
    evaluate([folder], lengths=[16, 32], sets=["evaluate.max_tokens=64"])
    small, full = sorted(read_measurements(folder), key=lambda one: one.targets.count)
    assert (small.targets.count, full.targets.count) == (64, 128)
    assert [row.length for row in small.rows] == [16, 32] and [row.length for row in full.rows] == [
        16,
        32,
        64,
    ]
    assert {row["tokens"] for row in stored(folder)} == {64, 128}


def test_an_absurd_length_is_wrong_input(run):
    data = "data={name: copy, sequence_length: 16, batch_size: 4}"
    for folder in (run(name="text"), run(data, "evaluate.samples=4", "evaluate.lengths=[16]")):
        with pytest.raises(InputError, match=f"no memory holds sequences of {10**23} tokens"):
            evaluate([folder], lengths=[10**23])


def test_the_table_has_the_lengths_and_what_they_cost(run, capsys):
    folder = run()
    capsys.readouterr()
    rows = evaluate([folder], lengths=[64, 16, 32])
    lines = capsys.readouterr().out.splitlines()
    assert ["encoding", "16", "(trained)", "32", "64"] in [line.split() for line in lines]
    assert all(any(line.startswith(name) for line in lines) for name in ("perplexity", "tokens/s", "Costs"))
    assert [row["length"] for row in stored(folder)] == [16, 32, 64]
    for row in rows:
        assert row["tokens_per_second"] > 0
