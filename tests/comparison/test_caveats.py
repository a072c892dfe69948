"""The caveats of a report, and the commands that remove them."""

import pytest
from cells import first

from zoo.errors import InputError
from zoo.reports.report import build


@pytest.fixture
def caveats_of():
    def caveats_of(*runs, **options):
        report = build(runs, **options)
        assert report.differences == ()
        return report.caveats

    return caveats_of


def test_comparable_runs_have_no_caveats(write_run, caveats_of):
    assert caveats_of(write_run("a"), write_run("b", "rope")) == ()


def test_differing_versions_and_commits_are_reported(write_run, caveats_of):
    card = {"versions.torch": "2.14.0", "git_commit": "f" * 40 + "-dirty"}
    assert caveats_of(write_run("a"), write_run("b", "rope", card=card)) == (
        "version of torch: 2.13.0 in runs/a; 2.14.0 in runs/b",
        "git commit: eeeeeeeeeeee in runs/a; ffffffffffff-dirty in runs/b",
    )


def test_unfinished_runs_are_reported(write_run, caveats_of):
    runs = [write_run(n, e, card={"finished": False}) for n, e in (("a", "alibi"), ("b", "rope"))]
    assert caveats_of(*runs) == ("no run is finished",)


def test_other_hardware_and_a_missing_log_are_reported(write_run, caveats_of):
    runs = write_run("a"), write_run("b", "rope", recipe={"trainer.accelerator": "gpu"}, speeds=())
    assert caveats_of(*runs) == (
        "recipe trainer.accelerator: auto in runs/a; gpu in runs/b: tokens per second do not compare",
        "runs/b: no train/tokens_per_second in metrics.csv: the training speed is unknown",
    )


def test_a_run_that_was_resumed_in_another_way_is_reported(write_run, caveats_of):
    def change(key, old, new, step=3):
        return {"step": step, "key": key, "from": old, "to": new}

    noted = [
        change("model.kernel", "sdpa", "reference"),
        change("code.mine", "1" * 64, "2" * 64),
        # These have changed no weight: when it was validated, how long it was to be, a step that never came.
        change("checkpoint.every_n_steps", 4, 2),
        change("trainer.max_steps", 3, 6),
        change("device", "cpu", "cuda", step=6),
    ]
    runs = write_run("a", card={"changed_on_resume": noted}), write_run("b", "rope")
    assert caveats_of(*runs) == (
        "runs/a: resumed at step 3 with a change that alters rounding or code: "
        "model.kernel from sdpa to reference",
        "runs/a: resumed at step 3 with a change that alters rounding or code: "
        "code.mine from 111111111111 to 222222222222",
    )


def test_seeds_that_are_not_the_same_are_reported(write_run, caveats_of):
    runs = [write_run("a"), write_run("b", seed=1), write_run("c", "rope"), write_run("d", "none")]
    assert caveats_of(*runs) == ("the seeds are not the same: 0 for none, rope; 0, 1 for alibi",)


def test_targets_that_training_may_have_seen_are_reported(write_run, row_of, caveats_of):
    def rows(recipe):
        return [row_of(recipe, n, 1.5, seen_in_training=float(n == 16)) for n in (16, 32)]

    runs = [write_run(n, e, values={64: "no"}, rows=rows) for n, e in (("a", "alibi"), ("b", "rope"))]
    runs.append(write_run("c", "none", values={64: "no", 16: 1.5, 32: 1.6}))
    assert caveats_of(*runs) == (
        "runs/a, runs/b: too few different examples to hold any out: training may have seen 100% of the "
        "scored examples at 16",
        "nothing could be measured by nonoverlapping (no) at 64",
    )


def test_where_nothing_at_all_was_measured_there_is_no_comparison(write_run):
    with pytest.raises(InputError, match=r"nothing was measured.*nonoverlapping at 16: too short"):
        build([write_run("a", values={16: "too short"})])


@pytest.mark.parametrize("options, said", [
    ({"protocols": ["slidin"]}, "did you mean 'sliding'?"),
    ({"protocols": ["sliding"]},
     "runs/b: was not evaluated so; do it with: python -m zoo evaluate runs/b --protocol sliding"),
    ({"lengths": [64, 16]},
     "no run was evaluated at 64; do it with: python -m zoo evaluate runs/a runs/b --lengths 64"),
])  # fmt: skip
def test_a_request_that_no_run_fulfils_is_refused_with_the_command(write_run, options, said):
    with pytest.raises(InputError) as caught:
        build([write_run("a"), write_run("b", "rope")], **options)
    assert said in str(caught.value)


def test_a_window_that_one_encoding_alone_was_read_in_is_left_out_and_reported(write_run, row_of):
    def bins(window):
        return lambda recipe: [
            row_of(recipe, n, 2.0, "per_position", {"window": window}) for n in (16, window)
        ]

    def shorter(recipe):
        read = ((64, "the encoding ends"), (32, "the encoding ends"), (16, 2.0))
        return [row_of(recipe, n, value, "per_position", {"window": n}) for n, value in read]

    runs = [write_run(n, e, rows=bins(64)) for n, e in (("a", "alibi"), ("b", "rope"))]
    runs.append(write_run("c", "learned", rows=shorter))
    report = build(runs, protocols=["per_position"])
    assert first(report, "parameters") == [('{"window": 64}',)]
    assert report.caveats == (
        "nothing could be measured by per_position (window 32) (the encoding ends) at 32",
        "per_position (window 16) was measured for learned alone, and is left out",
    )
    # Where there is nothing else to show, it is shown.
    alone = build([runs[0], runs[2]], protocols=["per_position"])
    assert first(alone, "parameters") == [('{"window": 16}',), ('{"window": 64}',)]


def test_no_run_is_asked_for_a_protocol_that_its_task_does_not_know(write_run, row_of):
    def rows(recipe):
        return [row_of(recipe, 16, None, "accuracy", accuracy=0.5)]

    copy = {"data": {"name": "copy", "sequence_length": 16, "batch_size": 4}, "task.name": "answering"}
    runs = [
        write_run("a"),
        write_run("b", "rope"),
        write_run("copy", recipe=copy, card={"task": "answering"}, values={16: "no text"}, rows=rows),
    ]
    with pytest.raises(InputError, match=r"runs/copy: no protocol 'sliding' for task 'answering'"):
        build([runs[0], runs[2]], protocols=["sliding"], force=True)
