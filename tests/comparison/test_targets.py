"""Values stand on one line only where the same tokens or examples were scored."""

import pytest
from cells import first

from zoo.comparison.comparable import differences
from zoo.comparison.runs import read_runs
from zoo.errors import InputError
from zoo.reports.report import build

X, Y = "1" * 12, "2" * 12


@pytest.fixture
def run_on(write_run, row_of):
    """A run with measurements at 16 and 32 on these targets: `run_on("a", X, Y)`."""

    def run_on(name, *digests, encoding="alibi", seed=0, recipe=None):
        def rows(made):
            return [
                row_of(made, n, 2.0 + len(digest), "sliding", targets=digest)
                for digest in digests
                for n in (16, 32)
            ]

        return write_run(name, encoding, seed, recipe=recipe, rows=rows)

    return run_on


def test_of_two_measurements_the_one_that_all_runs_have_is_compared(run_on):
    runs = [run_on("a", X, Y), run_on("b", X, encoding="rope")]
    report = build(runs, protocols=["sliding"])
    assert first(report, "targets") == [(X,)]
    (caveat,) = report.caveats
    assert "runs/a" in caveat and Y in caveat and "runs/b" not in caveat


def test_runs_with_no_targets_in_common_are_refused(run_on):
    runs = [
        run_on("a", X, recipe={"evaluate.max_tokens": 9000}),
        run_on("b", Y, encoding="rope", recipe={"evaluate.max_tokens": 10000}),
    ]
    (said,) = differences(read_runs(runs))
    assert said.startswith("sliding: other targets were scored") and X in said and Y in said
    assert said.endswith("evaluate.samples and --data")
    with pytest.raises(InputError, match="not comparable"):
        build(runs)


def test_by_force_they_are_panels_of_their_own(run_on):
    runs = [run_on("a", X), run_on("b", X, seed=1), run_on("c", Y, seed=2)]
    report = build(runs, protocols=["sliding"], force=True)
    assert first(report, "targets", "measured") == [(X, 2), (Y, 1)] and set(report.summary["mean"]) == {14.0}
