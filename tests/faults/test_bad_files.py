"""Recipes and run folders that are damaged: one message that names the file."""

import pytest

from zoo import cli
from zoo.comparison.runs import read_runs
from zoo.errors import InputError

MEASURED = "evaluation/measurements/accuracy.json"


def test_every_damaged_file_of_a_run_is_reported_at_once(run_copy):
    assert sum(len(one.rows) for one in read_runs([run_copy])[0].measurements) == 3
    (run_copy / "recipe.yaml").write_text("a: b: c\n")
    (run_copy / "card.json").write_text('{"steps": [')
    (run_copy / MEASURED).write_text('[{"length": 1e999}]')
    with pytest.raises(InputError) as caught:
        read_runs([run_copy])
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    for name in ("recipe.yaml:1: ", "card.json:1: ", f"{MEASURED}: not a measurement"):
        assert any(f"{run_copy}/{name}" in line for line in lines), lines
    assert cli.main(["list", "runs"]) == 0
