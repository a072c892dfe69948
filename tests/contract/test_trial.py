"""The laws that `fit` tries on a plugin before training."""

import sys
from pathlib import Path

import pytest
import yaml

from zoo import cli
from zoo.contract.check import check_plugin
from zoo.errors import InputError
from zoo.training.run import validate_plugins

FAULTY = Path(__file__).parent / "faulty"
SIZED = '''"""Built for one size alone."""

import torch

import zoo


@zoo.register("sized")
class Sized(zoo.Encoding):
    """Built for one size alone."""

    family = "content"

    def __init__(self, size):
        super().__init__(size)
        self.turns = torch.nn.Parameter(torch.ones(WIDTH))
        REFUSES

    def score(self, q, k, context):
        return (q * self.turns) @ k.transpose(-1, -2)
'''


@pytest.fixture
def tried(mapping, forgetful_registry):
    """Try an encoding of a file as `fit` does."""
    from zoo.recipe import resolve

    def tried(file, encoding, **model):
        trainer, made = model.pop("trainer", {}), mapping("text")
        made["evaluate"] = {**made.get("evaluate", {}), **model.pop("evaluate", {})}
        made = {**made, "plugins": [str(file)], "model": {**made["model"], "encoding": encoding, **model}}
        check_plugin(resolve({**made, "trainer": {**made["trainer"], **trainer}}))

    return tried


@pytest.mark.parametrize(("name", "line", "expected"), [
    ("misspelled_hook", 11, "nothing reads 'biass'; did you mean the hook 'bias'?"),
    ("head_missing", 19, "bias_table of 'head_missing' gave [3, 9, 9] where [4, 9, 9] is needed"),
    ("embed_too_wide", 12, "embed of 'embed_too_wide' gave [3, 9, 32] where [3, 9, 16] is needed"),
    ("queries_too_narrow", 11, "rotate of 'queries_too_narrow' gave queries 2 wide and keys 4 wide"),
    ("score_sees_later_keys", 11, "score of 'score_sees_later_keys' depends on a later token"),
    ("read_sees_later_tokens", 17, "read of 'read_sees_later_tokens' depends on a later token"),
    ("embed_sees_later_tokens", 11, "embed of 'embed_sees_later_tokens' depends on a later token"),
    ("parameter_unused", 8, "idle has no gradient"),
    ("constant_bias", 5, "bias changes nothing"),
])  # fmt: skip
def test_a_fault_is_reported_with_plugin_hook_file_and_line(tried, name, line, expected):
    with pytest.raises(InputError) as caught:
        tried(FAULTY / f"{name}.py", name, num_heads=4)
    (problem,) = caught.value.problems
    assert (problem.key, problem.where) == ("model.encoding", f"{FAULTY / name}.py:{line}")
    assert expected in problem.message and f"encoding {name!r}" in problem.message


def test_an_exception_of_the_plugin_is_reported_with_its_line(tried, tmp_path):
    text = (FAULTY / "score_sees_later_keys.py").read_text()
    (tmp_path / "raises.py").write_text(
        text.replace("        return q @", "        1 / 0\n        return q @")
    )
    with pytest.raises(InputError) as caught:
        tried(tmp_path / "raises.py", "score_sees_later_keys")
    (problem,) = caught.value.problems
    assert problem.where == f"{tmp_path / 'raises.py'}:12"
    assert "score of 'score_sees_later_keys' raised ZeroDivisionError: division by zero" in problem.message


@pytest.mark.parametrize(("rows", "lengths", "refused"), [(64, [16, 64], False), (64, [16, 128], True)])
def test_a_table_that_ends_below_an_evaluated_length_is_refused(tried, tmp_path, rows, lengths, refused):
    text = (FAULTY / "limit_undeclared.py").read_text().replace("size.length", str(rows))
    (tmp_path / "ends.py").write_text(text.replace("limit_undeclared", "ends"))
    if not refused:
        tried(tmp_path / "ends.py", "ends", evaluate={"lengths": lengths})
        return
    with pytest.raises(InputError, match="override `max_length`") as caught:
        tried(tmp_path / "ends.py", "ends", evaluate={"lengths": lengths})
    assert caught.value.problems[0].where == f"{tmp_path / 'ends.py'}:18"


def test_fit_refuses_before_a_run_folder_is_made(here, mapping, forgetful_registry, capsys):
    made = {**mapping("text"), "plugins": [str(FAULTY / "score_sees_later_keys.py")]}
    made["model"] = {**made["model"], "encoding": "score_sees_later_keys"}
    (here / "own.yaml").write_text(yaml.safe_dump(made))
    assert cli.main(["fit", "--recipe", "own.yaml"]) == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1 and printed.out == ""
    assert printed.err.startswith(f"{FAULTY / 'score_sees_later_keys.py'}:11: model.encoding: ")
    assert not (here / "runs").exists()


@pytest.mark.parametrize("encoding", [
    "counted", "forget_gate", {"name": "shaken", "of": "rope"}, ["rope", "forget_gate"],
])  # fmt: skip
def test_a_correct_plugin_passes(tried, plugins, encoding):
    tried(Path(__file__).parents[1] / "encodings" / "plugins" / "counted.py", encoding)


def test_an_encoder_may_use_later_tokens(tried):
    tried(FAULTY / "score_sees_later_keys.py", "score_sees_later_keys", kind="encoder")


@pytest.mark.parametrize("refuses", ["", "assert size.head_dim == WIDTH"])
@pytest.mark.parametrize(("d_model", "num_heads"), [(16, 2), (520, 2)])
def test_only_the_size_of_the_recipe_has_to_work(tried, tmp_path, d_model, num_heads, refuses):
    """A plugin for one size alone passes in a recipe of that size."""
    text = SIZED.replace("REFUSES", refuses).replace("WIDTH", str(d_model // num_heads))
    (tmp_path / "sized.py").write_text(text)
    tried(tmp_path / "sized.py", "sized", d_model=d_model, num_heads=num_heads)


def test_the_model_has_as_many_layers_as_the_pattern(tried):
    pattern = ["rope", "rope", "rope", "relative_undeclared"]
    tried(FAULTY / "relative_undeclared.py", {"name": "interleave", "pattern": pattern}, num_layers=4)


def test_bf16_is_tried_only_in_a_recipe_of_bf16(tried):
    tried(FAULTY / "rotate_gives_float32.py", "rotate_gives_float32")
    with pytest.raises(InputError, match="cast them back to the input's dtype"):
        tried(FAULTY / "rotate_gives_float32.py", "rotate_gives_float32", trainer={"precision": "bf16-mixed"})


def test_built_in_encodings_are_not_tried(recipe, monkeypatch):
    monkeypatch.setitem(sys.modules, "zoo.contract.check", None)  # an import of it would fail
    validate_plugins(recipe("text"))


def test_the_frozen_encoding_shown_is_tried(tried, tmp_path):
    """Its parameters have no gradient. A run without evaluation has no lengths to try."""
    page = (Path(__file__).parents[2] / "docs" / "add-your-own.md").read_text()
    file = tmp_path / "frozen.py"
    file.write_text(page.partition("```python\n# frozen.py\n")[2].partition("```")[0])
    tried(file, {"name": "frozen", "of": "fire"}, evaluate={"lengths": []})
