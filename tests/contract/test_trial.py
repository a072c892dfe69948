"""The laws that `fit` tries on a plugin before training."""

import sys
from pathlib import Path

import pytest
import yaml
from faults import SOURCES

from zoo import cli
from zoo.contract.check import check_plugin
from zoo.errors import InputError
from zoo.training.run import validate_plugins

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
    ("misspelled_hook", "def biass", "nothing reads 'biass'; did you mean the hook 'bias'?"),
    ("head_missing", "def bias_table", "bias_table of 'head_missing' gave [3, 9, 9] where [4, 9, 9] is"),
    ("embed_too_wide", "def embed", "embed of 'embed_too_wide' gave [3, 9, 32] where [3, 9, 16] is needed"),
    ("queries_too_narrow", "def rotate", "rotate of 'queries_too_narrow' gave queries 2 wide and keys 4"),
    ("score_sees_later_keys", "def score", "score of 'score_sees_later_keys' depends on a later token"),
    ("read_sees_later_tokens", "def read", "read of 'read_sees_later_tokens' depends on a later token"),
    ("embed_sees_later_tokens", "def embed", "embed of 'embed_sees_later_tokens' depends on a later token"),
    ("parameter_unused", "class ParameterUnused", "idle has no gradient"),
    ("constant_bias", "class ConstantBias", "bias changes nothing"),
    ("raises", "1 / 0", "score of 'raises' raised ZeroDivisionError: division by zero"),
])  # fmt: skip
def test_a_fault_is_reported_with_plugin_hook_file_and_line(tried, faulty, text_at, name, line, expected):
    raises = SOURCES["score_sees_later_keys"].replace(
        "        return q @", "        1 / 0\n        return q @"
    )
    file = faulty(name, raises.replace("score_sees_later_keys", "raises") if name == "raises" else None)
    with pytest.raises(InputError) as caught:
        tried(file, name, num_heads=4)
    (problem,) = caught.value.problems
    assert problem.key == "model.encoding" and problem.where.startswith(f"{file}:")
    assert text_at(problem.where).startswith(line)
    assert expected in problem.message and f"encoding {name!r}" in problem.message


def test_a_table_that_ends_below_an_evaluated_length_is_refused(tried, faulty, text_at):
    text = SOURCES["limit_undeclared"].replace("size.length", "64").replace("limit_undeclared", "ends")
    tried(faulty("ends", text), "ends", evaluate={"lengths": [16, 64]})
    with pytest.raises(InputError, match="override `max_length`") as caught:
        tried(faulty("ends", text), "ends", evaluate={"lengths": [16, 128]})
    assert "self.table[pos]" in text_at(caught.value.problems[0].where)


def test_fit_refuses_before_a_run_folder_is_made(here, mapping, faulty, forgetful_registry, capsys):
    file = faulty("score_sees_later_keys")
    made = {**mapping("text"), "plugins": [str(file)]}
    made["model"] = {**made["model"], "encoding": file.stem}
    (here / "own.yaml").write_text(yaml.safe_dump(made))
    assert cli.main(["fit", "--recipe", "own.yaml"]) == 2
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1 and printed.out == ""
    assert printed.err.startswith(f"{file}:") and ": model.encoding: " in printed.err
    assert not (here / "runs").exists()


@pytest.mark.parametrize("encoding", [
    "counted", "forget_gate", {"name": "shaken", "of": "rope"}, ["rope", "forget_gate"],
])  # fmt: skip
def test_a_correct_plugin_passes(tried, plugins, encoding):
    tried(Path(__file__).parents[1] / "encodings" / "plugins" / "counted.py", encoding)


def test_an_encoder_may_use_later_tokens(tried, faulty):
    tried(faulty("score_sees_later_keys"), "score_sees_later_keys", kind="encoder")


@pytest.mark.parametrize("refuses", ["", "assert size.head_dim == WIDTH"])
@pytest.mark.parametrize(("d_model", "num_heads"), [(16, 2), (520, 2)])
def test_only_the_size_of_the_recipe_has_to_work(tried, tmp_path, d_model, num_heads, refuses):
    """A plugin for one size alone passes in a recipe of that size."""
    text = SIZED.replace("REFUSES", refuses).replace("WIDTH", str(d_model // num_heads))
    (tmp_path / "sized.py").write_text(text)
    tried(tmp_path / "sized.py", "sized", d_model=d_model, num_heads=num_heads)


def test_the_model_has_as_many_layers_as_the_pattern(tried, faulty):
    pattern = ["rope", "rope", "rope", "relative_undeclared"]
    tried(faulty("relative_undeclared"), {"name": "interleave", "pattern": pattern}, num_layers=4)


def test_bf16_is_tried_only_in_a_recipe_of_bf16(tried, faulty):
    tried(faulty("rotate_gives_float32"), "rotate_gives_float32")
    with pytest.raises(InputError, match="cast them back to the input's dtype"):
        tried(faulty("rotate_gives_float32"), "rotate_gives_float32", trainer={"precision": "bf16-mixed"})


def test_built_in_encodings_are_not_tried(recipe, monkeypatch):
    monkeypatch.setitem(sys.modules, "zoo.contract.check", None)  # an import of it would fail
    validate_plugins(recipe("text"))


def test_the_frozen_encoding_shown_is_tried(tried, tmp_path):
    """Its parameters have no gradient. A run without evaluation has no lengths to try."""
    page = (Path(__file__).parents[2] / "docs" / "add-your-own.md").read_text()
    file = tmp_path / "frozen.py"
    file.write_text(page.partition("```python\n# frozen.py\n")[2].partition("```")[0])
    tried(file, {"name": "frozen", "of": "fire"}, evaluate={"lengths": []})
