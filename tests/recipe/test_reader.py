"""Reading a recipe: values, defaults, and problems with their locations."""

from pathlib import Path

import pytest
import yaml

from zoo.errors import InputError, Problem
from zoo.recipe import dump, read_recipe, recipe_of_run, resolve
from zoo.recipe.reader import read_tree
from zoo.registry import encodings

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))

NINE_FAULTS = """\
# Nine faults.
seed: "7"
model:
  kind: decoder
  encoding: alibbi
  d_model: 100
  num_heads: 8
data:
  name: wikitext2
  sequence_lenth: 512
  sequence_length: 512
  batch_size: true
optimizer: {lr: 6e-4, schedule: cosin}
trainer:
  max_steps: 1e2
  logger: true
"""

# The line and the key of each problem.
STAGES = (
    ["5: model.encoding", "9: data.name", "13: optimizer.schedule"],
    [
        "2: seed",
        "3: model.num_layers",
        "10: data.sequence_lenth",
        "12: data.batch_size",
        "16: trainer.logger",
    ],
    ["8: model.num_heads"],
)
MENDED = (
    {"alibbi": "alibi", "wikitext2": "wikitext-2", "cosin}": "cosine}"},
    {'"7"': "7", "  num_heads": "  num_layers: 2\n  num_heads", "  sequence_lenth: 512\n": "",
     "true\noptimizer": "8\noptimizer", "  logger: true\n": ""},
)  # fmt: skip


def test_every_problem_of_a_stage_at_once_with_its_line(write, problems):
    text = NINE_FAULTS
    for places, mended in zip(STAGES, (*MENDED, {"num_heads: 8": "num_heads: 10"}), strict=True):
        found = problems(read_recipe, write(text, "recipes/x.yaml"))
        assert [": ".join(line.split(": ")[:2]) for line in found] == [
            f"recipes/x.yaml:{at}" for at in places
        ]
        for wrong, right in mended.items():
            text = text.replace(wrong, right)
    assert problems(read_recipe, write(text, "recipes/x.yaml")) == []


def test_a_good_recipe_reads(write, good):
    recipe = read_recipe(write(good))
    assert recipe.optimizer.lr == 6e-4
    expected = {"name": "alibi", "slopes": "official", "form": "symmetric", "learned": False}
    assert recipe.model.encoding == expected
    assert recipe.task.name == "language_modelling"
    assert recipe.evaluate.lengths == (128, 256, 512)
    assert recipe.evaluate.protocols == ("nonoverlapping",)


def test_the_name_is_the_files_unless_given(write, good):
    assert read_recipe(write(good, "other.yaml")).name == "good"
    del good["name"]
    assert read_recipe(write(good, "other.yaml")).name == "other"


def test_a_number_in_exponent_notation_is_a_number(write, good):
    text = yaml.safe_dump(good).replace("0.0006", "6e-4").replace("max_steps: 200", "max_steps: 1e3")
    recipe = read_recipe(write(text))
    assert recipe.optimizer.lr == 6e-4
    assert recipe.trainer.max_steps == 1000 and type(recipe.trainer.max_steps) is int


def test_a_number_of_thousands_of_digits_is_one_problem(write, good, problems):
    (line,) = problems(read_recipe, write(f"seed: {'1' * 5000}\n" + yaml.safe_dump(good)))
    assert line.startswith("recipe.yaml:1: seed: must be a whole number")


WRONG_VALUES = (
    "trainer.max_steps='100'", "trainer.max_steps=1.5", "trainer.max_steps=true", "trainer.max_steps=null",
    "trainer.max_steps=0", "optimizer.lr='6e-4'", "optimizer.lr=.nan", "optimizer.lr=.inf",
    "optimizer.lr=false", "optimizer.betas=[0.9]", "compile=yes", "compile=1", "name=a/b", "name=..x",
    "seed=-1", "model.window=0", "model.d_model=1e300", "model.kind=[decoder]", "data.name=[text]",
    "task=[max_index]",
    "evaluate.lengths=[64, 0]", "evaluate.during=1", "evaluate.stride=0", "evaluate.stride=1.5",
    "evaluate.stride=-0.5", "evaluate.stride=half", "trainer.devices=[0, x]",
    "trainer.deterministic=sometimes", "model.encoding=[]", "model.encoding=null",
    "model.encoding={slopes: official}", "plugins=mine.py", "model.logit_scale={name: [adaptive]}",
)  # fmt: skip


def test_a_wrong_value_is_one_problem_at_its_place(write, good, problems):
    file = write(good)
    for setting in WRONG_VALUES:
        (line,) = problems(read_recipe, file, [setting])
        assert line.startswith(f"--set {setting}: {setting.partition('=')[0]}"), line


SUGGESTIONS = {
    "optimiser.lr=1": "did you mean 'optimizer'?",
    "model.encoding=rop": "did you mean 'rope'?",
    "model.encoding.slops=official": "did you mean 'slopes'?",
    "model.norm=layer_norm": "did you mean 'layernorm'?",
    "trainer.limit_val_batch=2": "did you mean 'limit_val_batches'?",
    "evaluate.during={every_n_steps: 5, sample: 3}": "did you mean 'samples'?",
    "optimizer.max_steps=5": "did you mean 'trainer.max_steps'?",
    "evaluate.lengths=64,128": "write [64,128]",
}


def test_the_nearest_valid_name_is_suggested(write, good, problems):
    file = write(good)
    for setting, suggestion in SUGGESTIONS.items():
        (line,) = problems(read_recipe, file, [setting])
        assert suggestion in line


def test_duplicate_keys_name_both_lines(write, good, problems):
    text = "seed: 1\nseed: 2\nevaluate:\n  samples: 1\n  samples: 2\n" + yaml.safe_dump(good)
    assert problems(read_recipe, write(text, "twice.yaml")) == [
        "twice.yaml:2: seed: duplicate key: here and on line 1",
        "twice.yaml:5: evaluate.samples: duplicate key: here and on line 4",
    ]


NOT_RECIPES = (
    ("", 1, "empty"),
    ("# nothing\n", 1, "empty"),
    ("- a\n- b\n", 1, "a recipe is a mapping"),
    ("just words\n", 1, "a recipe is a mapping"),
    ("a: *nowhere\n", 1, "not YAML"),
    ("compile: !thing x", 1, "could not determine a constructor for the tag '!thing'"),
    ("seed: !!python/object/apply:os.getcwd []", 1, "could not determine a constructor"),
    ("? [x]\n: 1", 1, "unhashable key"),
    ("a: 1\nb: \x07\n", 1, "not YAML"),
    ("model:\n\tkind: decoder\n", 2, "not YAML"),
    ("model:\n  kind: x\n d_model: 2\n", 3, "not YAML"),
    ("name: a: b\n", 1, "not YAML"),
    ("seed: 1\n---\nseed: 2\n", 2, "not YAML"),
    ("seed: 1\na: &a [*a]\n", 2, "a.0: an alias refers to itself"),
    ("a: &a\n  b: *a\n", 2, "a.b: an alias refers to itself"),
    ("seed: 1\na: " + "[" * 3000 + "]" * 3000, 2, "nested deeper than 50 levels"),
    ("a0: &a0 [1]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(30)), 1,
     "more than 10,000 values"),
)  # fmt: skip


def test_a_file_that_is_not_a_recipe_is_one_problem_at_its_line(write, problems):
    for text, line, message in NOT_RECIPES:
        (found,) = problems(read_recipe, write(text, "x.yaml"))
        assert found.startswith(f"x.yaml:{line}: ") and message in found, (text, found)


def test_files_that_cannot_be_read(write, problems, tmp_path):
    write("seed: 1\n", "recipes/alibi_text.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"seed: 1\nname: caf\xe9\n")
    for file, message in (
        ("recipes/alibi_txt.yaml", "no such recipe file; did you mean recipes/alibi_text.yaml?"),
        ("recipes", "cannot be read: Is a directory"), ("latin.yaml", "latin.yaml:2: is not UTF-8 text"),
    ):  # fmt: skip
        (line,) = problems(read_recipe, file)
        assert line.startswith(file) and message in line


# Bases


def test_a_recipe_changes_its_base(write, good):
    good["model"]["encoding"] = {"name": "alibi", "slopes": "geometric"}
    write(good, "recipes/base/b.yaml")
    recipe = read_recipe(write("base: base/b.yaml\nmodel: {num_layers: 3}\nseed: 5\n", "recipes/child.yaml"))
    assert recipe.name == "child"
    assert recipe.seed == 5 and recipe.model.num_layers == 3 and recipe.model.d_model == 64
    assert recipe.model.encoding["slopes"] == "geometric"
    # An encoding replaces that of the base with its options.
    child = "base: base/b.yaml\nmodel: {encoding: {name: alibi}}\n"
    assert read_recipe(write(child, "recipes/same.yaml")).model.encoding["slopes"] == "official"


def test_a_problem_of_the_base_is_reported_there(write, good, problems):
    good["model"]["num_heads"] = 0
    write(yaml.safe_dump(good, sort_keys=False), "recipes/base/b.yaml")
    line_of_heads = Path("recipes/base/b.yaml").read_text().splitlines().index("  num_heads: 0") + 1
    found = problems(read_recipe, write("base: base/b.yaml\nsed: 1\n", "recipes/child.yaml"))
    assert [line.rpartition(": ")[0] for line in found] == [
        f"recipes/base/b.yaml:{line_of_heads}: model.num_heads", "recipes/child.yaml:2: sed",
    ]  # fmt: skip
    write({"base": "b.yaml", **good}, "recipes/base/second.yaml")
    for base, message in (
        (
            "base/bb.yaml",
            "recipes/a.yaml:1: base: no file recipes/base/bb.yaml; did you mean recipes/base/b.yaml?",
        ),
        ("base/second.yaml", "recipes/base/second.yaml:1: base: a base recipe cannot have a `base` itself"),
    ):
        (first, *_) = problems(read_recipe, write(f"base: {base}\n", "recipes/a.yaml"))
        assert first == message


# --set


SETTINGS = (
    (["trainer.max_steps=1e2"], lambda r: r.trainer.max_steps, 100),
    (["optimizer.lr=6e-4"], lambda r: r.optimizer.lr, 6e-4),
    (["evaluate.lengths=[64,128]"], lambda r: r.evaluate.lengths, (64, 128)),
    (["evaluate.lengths=[64,128]", "evaluate.lengths.0=32"], lambda r: r.evaluate.lengths, (32, 128)),
    (["data.sequence_length=64.0"], lambda r: r.evaluate.lengths, (64, 128, 256)),
    (["model.encoding=rope"], lambda r: r.model.encoding["name"], "rope"),
    (["model.encoding.slopes=geometric"], lambda r: r.model.encoding["slopes"], "geometric"),
    (["model.encoding={name: alibi, form: one_sided}"], lambda r: r.model.encoding["form"], "one_sided"),
    (["model.encoding=[rope, alibi]", "model.encoding.1.slopes=geometric"],
     lambda r: r.model.encoding[1]["slopes"], "geometric"),
    (["checkpoint.every_n_steps=7"], lambda r: r.checkpoint.every_n_steps, 7),
    (["trainer.limit_val_batches=1.0"], lambda r: type(r.trainer.limit_val_batches), float),
    (["trainer.limit_val_batches=1"], lambda r: type(r.trainer.limit_val_batches), int),
    (["trainer.precision=32"], lambda r: r.trainer.precision, "32-true"),
    (["trainer.deterministic=warn"], lambda r: r.trainer.flags()["deterministic"], "warn"),
    (["trainer.gradient_clip_val="], lambda r: r.trainer.gradient_clip_val, None),
    (["data.root=a=b"], lambda r: r.data.root, "a=b"),
    (["task.name=language_modelling"], lambda r: r.task.name, "language_modelling"),
    (["seed=1", "seed=2"], lambda r: r.seed, 2),
    *(([f"evaluate.stride={stride}"], lambda r: r.evaluate.stride, stride) for stride in (1, 7, 0.5, 1.0)),
)  # fmt: skip


def test_set_changes_any_key(write, good):
    file = write(good)
    for settings, read, value in SETTINGS:
        assert read(read_recipe(file, settings)) == value, settings


def test_a_mapping_changes_what_the_same_texts_change(write, good, problems):
    file = write(good)
    texts = ["seed=1", "optimizer.lr=0.5", "optimizer.warmup_steps=3", "model.encoding=rope"]
    mapping = {
        "seed": 1, "optimizer.lr": 0.5, "optimizer": {"warmup_steps": 3}, "model": {"encoding": "rope"},
    }  # fmt: skip
    assert read_recipe(file, mapping) == read_recipe(file, texts)
    assert problems(read_recipe, file, {"model": {"d_modl": 3}}) == [
        "--set model.d_modl=3: model.d_modl: unknown key; did you mean 'd_model'?"
    ]


def test_a_problem_of_a_set_names_it(write, good, problems):
    good |= {"logging": ["csv"], "seed": 0}
    file = write(good)
    for setting, message in (
        ("seed", "not of the form key=value"),
        ("=5", "not of the form key=value"),
        ("a..b=5", "not of the form key=value"),
        ("seed=[1", "not YAML"),
        ("seed.x=1", "with no keys below it"),
        ("logging.5=csv", "no index '5'"),
    ):
        (line,) = problems(read_recipe, file, [setting])
        assert line.startswith(f"--set {setting}: ") and message in line


# The last five break a rule between keys: the one that was set is at fault.
BROKEN_BY_SET = {
    "optimzer.lr=1": "optimzer",
    "nosuch.deep.key=1": "nosuch",
    "model.encoding.0.base=5": "model.encoding.0",
    "model.encoding.slopes.x=5": "model.encoding.slopes",
    "evaluate.lengths.0=16": "evaluate.lengths",
    "model={d_modl: 64, kind: decoder, encoding: none, d_model: 8, num_layers: 1, num_heads: 1}":
        "model.d_modl",
    "model.d_model=7": "model.num_heads",
    "trainer.devices=3": "data.batch_size",
    "data.sequence_length=1000000": "evaluate.max_tokens",
    "model.kind=encoder": "task",
    "data={name: max_index, sequence_length: 16, batch_size: 8}": "task",
}  # fmt: skip


def test_a_problem_made_by_a_set_is_located_there_and_not_in_the_file(write, good, problems):
    file = write(good | {"task": "language_modelling", "seed": 0})
    for setting, key in BROKEN_BY_SET.items():
        (line,) = problems(read_recipe, file, ["seed=1", setting])
        assert line.startswith(f"--set {setting}: {key}: "), line
    del good["model"]["num_heads"]
    (line,) = problems(read_recipe, write(good), ["model.num_heads=4", "model.d_model=7"])
    assert "4 heads do not divide d_model 7" in line


def test_any_key_can_be_located(write):
    write("model:\n  encoding:\n    slopes: geometric\n    name: alibi\ndata: {batch_size: 1}\n", "b.yaml")
    child = write("base: b.yaml\nevaluate: {lengths: [1, 2]}\nseed: 3\n", "child.yaml")
    places = {
        "model.encoding.slopes": "b.yaml:3",
        "model.encoding.form": "b.yaml:2",  # not given: the place of the encoding
        "data.batch_size": "--set data.batch_size=2",
        "evaluate.lengths.1": "child.yaml:2",
        "seed": "child.yaml:3",
        "nosuch.key": "child.yaml:1",
    }
    error = InputError(Problem("wrong", key) for key in places)
    located = read_tree(Path(child), ["data.batch_size=2"]).located(error)
    assert {one.key: one.where for one in located.problems} == places


# Plugins

PLUGIN = '''
import zoo
from zoo import Encoding, register

@register("far")
class Far(Encoding):
    """Looks far."""
    decoder = True
    encoder = False

    def __init__(self, size, *, reach: float, sides: list[int] | None = None, of: Encoding = "none"):
        super().__init__(size)
'''


def test_a_plugin_is_relative_to_the_file_that_names_it(write, good, tmp_path):
    write(PLUGIN, "recipes/far.py")
    good |= {"plugins": ["far.py"]}
    good["model"]["encoding"] = {"name": "far", "reach": 2, "of": {"name": "alibi", "slopes": "geometric"}}
    recipe = read_recipe(write(good, "recipes/r.yaml"))
    assert recipe.plugins == (str(tmp_path / "recipes/far.py"),)
    inner = {"name": "alibi", "slopes": "geometric", "form": "symmetric", "learned": False}
    assert recipe.model.encoding == {"name": "far", "reach": 2.0, "sides": None, "of": inner}
    assert resolve(recipe.as_dict()) == recipe


def test_options_of_a_plugin_are_checked_wrapped_ones_too(write, good, problems):
    write(PLUGIN, "far.py")
    good |= {"plugins": ["far.py"]}
    good["model"] |= {
        "kind": "encoder",
        "encoding": {"name": "far", "sides": [1, "x"], "of": {"name": "far", "reach": "1"}},
    }
    found = problems(read_recipe, write(good))
    assert [line.split(": ", 2)[1:] for line in found] == [
        ["model.encoding.reach", "missing"],
        ["model.encoding.sides.1", "must be a whole number, got the text 'x'"],
        ["model.encoding.of.reach", "must be a number, got the text '1'"],
    ]
    good["model"]["encoding"] = {"name": "far", "reach": 1}
    (line,) = problems(read_recipe, write(good))
    assert line.endswith("model.encoding: encoding 'far' is not for an encoder")


def test_a_plugin_that_cannot_be_read_is_reported_with_the_other_problems(write, good, problems):
    good["model"] |= {"encoding": "mine", "num_heads": 7}
    file = write("plugins:\n  - mine.py\nsed: 1\n" + yaml.safe_dump(good))
    for source, message in ((None, "no such file"), ("def f(:\n", "not Python"), ("x = 1\n", "decorated")):
        if source is not None:
            write(source, "mine.py")
        (line,) = problems(read_recipe, file)
        assert line.startswith("recipe.yaml:2: plugins.0: ") and message in line


def test_a_stored_recipe_is_read_without_its_plugins(write, good):
    write(PLUGIN.replace("far", "farther"), "farther.py")
    encoding = {"name": "unseen", "reach": 2.0}
    data = {"name": "unseen_data", "sequence_length": 8, "batch_size": 2, "depth": 3}
    stored = good | {"plugins": ["farther.py"], "data": data, "evaluate": {"lengths": [8], "own": 1}}
    stored["task"] = {"name": "unseen_task"}
    stored["checkpoint"] = {"every_n_steps": 5, "sharded": "auto"}  # of earlier versions
    stored["model"] = good["model"] | {"encoding": encoding}
    recipe = recipe_of_run(stored)
    assert recipe.model.encoding == encoding and recipe.as_dict()["data"] == data | {"workers": 0}
    assert recipe.as_dict()["checkpoint"] == {"every_n_steps": 5, "keep_every_n_steps": None}
    assert recipe.model.init_std == 0.02
    assert recipe.plugins == ("farther.py",) and "farther" not in encodings.names()
    with pytest.raises(InputError, match=r"model\.d_model: must be a whole number"):
        recipe_of_run(stored | {"model": good["model"] | {"d_model": "wide"}})


# Round trips


def test_every_shipped_recipe_survives_a_round_trip(tmp_path):
    assert len(RECIPES) >= 8
    for path in RECIPES:
        recipe = read_recipe(path)
        assert resolve(recipe.as_dict()) == recipe, path
        again = tmp_path / "resolved.yaml"
        again.write_text(dump(recipe))
        assert read_recipe(again) == recipe, path


def test_every_encoding_survives_a_round_trip(good, write, spec_of):
    for name in encodings.names():
        about = encodings.describe(name)
        good["model"] |= {"encoding": spec_of(name), "kind": "decoder" if about.decoder else "encoder"}
        recipe = resolve(good)
        assert recipe.model.encoding.keys() == {"name", *(option.name for option in about.options)}, name
        assert resolve(recipe.as_dict()) == recipe, name
        if not about.replaces:  # a file is a training run, and such an encoding is only for evaluation
            assert read_recipe(write(dump(recipe))) == recipe, name


def test_texts_and_numbers_keep_their_type_and_value(good, write):
    for text in ("1e3", "6e-4", "null", "~", "on", "true", "0x1f", "1_0", " a ", "a: b", "é😀", "- a", "#"):
        good["data"]["root"] = text
        recipe = resolve(good)
        assert read_recipe(write(dump(recipe))).data.root == text
        assert yaml.safe_load(dump(recipe)) == recipe.as_dict()
    for number in (1e-5, 6e-4, 1e300, 0.1, 3e-320, 1.0):
        good["optimizer"]["lr"] = number
        text = dump(resolve(good))
        assert read_recipe(write(text)).optimizer.lr == yaml.safe_load(text)["optimizer"]["lr"] == number


def test_the_name_of_a_file_becomes_a_valid_name_of_a_run(tmp_path, recipe):
    made = {key: value for key, value in recipe("max_index").as_dict().items() if key != "name"}
    names = {
        "plain_2.yaml": "plain_2", "ré cipe.yaml": "r-cipe", "Größe.yaml": "Gr-e", "_draft.yaml": "draft",
        "-x.yaml": "x", "a.b.yaml": "a.b", "a (1).yaml": "a-1", "模型.yaml": "recipe", "...yaml": "recipe",
        "x" * 240 + ".yaml": "x" * 200,
    }  # fmt: skip
    for file, name in names.items():
        (tmp_path / file).write_text(yaml.safe_dump(made))
        assert read_recipe(tmp_path / file).name == name
