"""Recipes and run folders that are damaged: one message that names the file."""

import os
from pathlib import Path

import pytest

from zoo import cli
from zoo.comparison.runs import read_runs
from zoo.errors import InputError

MEASURED = "evaluation/measurements/accuracy.json"


@pytest.mark.parametrize("content, message", [
    ("- a list\n", "bad.yaml:1: "),
    ("name: [\n", "bad.yaml:2: "),
    ("seed: !!python/object/apply:os.system ['touch ran']", "bad.yaml:1: "),
])  # fmt: skip
def test_a_file_that_is_not_a_recipe_is_reported(here, capsys, content, message):
    Path("bad.yaml").write_text(content)
    for arguments in (["show", "bad.yaml"], ["fit", "--recipe", "bad.yaml"]):
        assert cli.main(arguments) == 2
        assert message in capsys.readouterr().err
    assert os.listdir() == ["bad.yaml"]


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


def test_a_folder_that_is_not_a_run_is_reported(here):
    (here / "thesis").mkdir()
    (here / "thesis" / "thesis.tex").write_text("")
    with pytest.raises(InputError, match="thesis"):
        read_runs([here / "thesis"])
