"""Every shipped recipe is read, built and takes a training step."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from zoo import registry
from zoo.data import open_data
from zoo.data.prepare import prepare
from zoo.errors import InputError
from zoo.recipe import read_recipe
from zoo.reports.fit import fit
from zoo.runs.card import read_card
from zoo.tasks import build_task
from zoo.training.module import TaskModule
from zoo.training.plan import plan_of

RECIPES = Path(__file__).parents[1] / "recipes"
FILES = sorted(RECIPES.glob("*.yaml"))
BASES = sorted(RECIPES.glob("base/*.yaml"))
SMALL = [
    "data.sequence_length=16", "data.batch_size=4", "data.workers=0", "evaluate.lengths=[16]",
    "model.d_model=32", "model.num_heads=4", "trainer.accelerator=cpu", "trainer.devices=1",
    "trainer.accumulate_grad_batches=1",
]  # fmt: skip


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """A folder laid out as the corpora are, with a few words in each."""
    root = tmp_path_factory.mktemp("texts")
    for corpus in ("wikitext-2", "wikitext-103"):
        (root / corpus).mkdir()
        for split, articles in (("train", 40), ("valid", 3), ("test", 3)):
            articles = "".join(
                f" = Article {n} = \n \n The {n} th of the articles tells of {n * n} things . \n \n"
                for n in range(articles)
            )
            (root / corpus / f"wiki.{split}.tokens").write_text(articles)
    for split in ("train", "valid"):
        (root / "novels" / split).mkdir(parents=True)
        (root / "novels" / split / "one.txt").write_text(f"It was the {split} of all times. " * 300)
    return root


def small(recipe, texts):
    """The settings that make a recipe small enough for a test."""
    sets = list(SMALL)
    if recipe.task.name == "answering":
        # As long as it says: not every example fits into less.
        sets.remove("data.sequence_length=16")
        sets[sets.index("evaluate.lengths=[16]")] = f"evaluate.lengths=[{recipe.data.sequence_length}]"
    if hasattr(recipe.data, "vocab_size"):
        root = texts / "novels" if recipe.data.name == "text" else texts
        sets += [f"data.root={root}", f"data.cache={texts / 'cache'}", "data.vocab_size=300"]
    if recipe.data.name == "hub":
        sets += [f"data.id={texts / 'novels'}", "data.config=null", "data.tokenizer=null"]
    if recipe.data.name == "sample":
        sets += ["data.documents=8", "data.words=80"]
    return sets


@functools.cache
def whole(file):
    """A recipe as it is shipped."""
    return read_recipe(file)


def kind_of(file):
    """The parts of a recipe other than its encoding that decide which code runs."""
    recipe = whole(file)
    return recipe.model.kind, recipe.task.name, recipe.data.name, bool(recipe.init_from)


def one_of_each_kind():
    """The first recipe of each kind, and all others: they differ from one of the first in the encoding."""
    first = {kind_of(file): file for file in reversed([*FILES, *BASES])}.values()
    return list(first), [file for file in (*FILES, *BASES) if file not in first]


CHOSEN, SIMILAR = one_of_each_kind()


def take_a_step(file, texts):
    assert whole(file).name == file.stem
    # A base stands for all encodings that can be laid over it.
    encoding = ["model.encoding=learned"] if file in BASES else []
    recipe = read_recipe(file, [*small(whole(file), texts), *encoding])
    source = open_data(recipe)
    task = build_task(recipe, source.vocab_size)
    batch = next(iter(source.train_loader()))
    assert batch["tokens"].shape == (4, recipe.data.sequence_length)
    module = TaskModule(task)
    made = module.configure_optimizers()
    optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    before = {name: value.clone() for name, value in task.model.named_parameters()}
    task.model.train()
    loss = module.training_step(batch, 0)
    loss.backward()
    optimizer.step()
    schedule.step()
    assert loss.isfinite(), file
    # The step changes every parameter, those of the encoding among them.
    still = [name for name, value in task.model.named_parameters() if torch.equal(value, before[name])]
    assert not still, file


@pytest.mark.parametrize("file", CHOSEN, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_recipe_takes_a_step(file, texts):
    take_a_step(file, texts)


def test_the_other_recipes_take_a_step(texts):
    for file in SIMILAR:
        take_a_step(file, texts)


@pytest.mark.parametrize("file", [f for f in FILES if whole(f).init_from], ids=lambda file: file.stem)
def test_a_recipe_with_init_from_continues_a_shipped_recipe(file, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = whole(file)
    first = whole(file.with_name(f"{Path(recipe.init_from).name}.yaml"))
    assert recipe.init_from == f"runs/{first.name}"
    steps = ["trainer.max_steps=2", "evaluate.max_tokens=64", "logging=[]"]
    for one in (first, recipe):
        folder = fit(read_recipe(file.with_name(f"{one.name}.yaml"), [*small(one, texts), *steps]))
        assert folder == Path("runs") / one.name


FINEWEB = RECIPES / "base" / "fineweb_125m.yaml"


def test_a_large_run_is_planned_before_anything_is_fetched(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    plan = plan_of(read_recipe(FINEWEB, ["trainer.devices=1", "trainer.accelerator=cpu"]))
    # Of each layer 12 products of width times width; what is left are the gains of norms.
    assert plan.parameters == pytest.approx(12 * 12 * 768**2, rel=1e-3) and plan.vocab_size is None
    assert plan.tokens == 17000 * 2**19 and plan.sequences == 64 and plan.warnings() == []


@pytest.mark.slow
def test_a_large_run_is_prepared_and_trained_small(texts, tmp_path):
    recipe = read_recipe(FINEWEB)
    sets = [*small(recipe, texts), "trainer.max_steps=3", "logging=[]", "evaluate.max_tokens=64"]
    recipe = read_recipe(FINEWEB, [*sets, "model.encoding=rope", "trainer.accumulate_grad_batches=2"])
    assert "train" in prepare(recipe)
    folder = fit(recipe, out=tmp_path / "run")
    assert read_card(folder)["tokens_seen"] == 3 * 4 * 16


def test_a_recipe_is_evaluated_from_its_trained_length_to_four_times_that():
    for file in (*FILES, *BASES):
        recipe = whole(file)
        assert max(recipe.evaluate.lengths) >= 4 * recipe.data.sequence_length, file
        assert min(recipe.evaluate.lengths) == recipe.data.sequence_length, file


LAYOUT = ("window", "logit_scale", "qk_norm", "kv_shift", "head_norm", "output_gate")
"""Keys of `model` besides the encoding in which recipes over one base may differ."""


def test_recipes_over_one_base_differ_in_the_encoding_alone():
    groups = {}
    for file in FILES:
        text = file.read_text()
        base = next((line for line in text.splitlines() if line.startswith("base:")), None)
        resolved = whole(file).as_dict()
        resolved.pop("name")
        resolved["model"].pop("encoding")
        layout = str([resolved["model"].pop(key) for key in LAYOUT])
        # A recipe that continues another run trains for fewer steps.
        key = base, resolved["model"]["kind"], resolved["init_from"], layout
        groups.setdefault(key, []).append(resolved)
    assert len(FILES) >= 8
    for members in groups.values():
        assert all(member == members[0] for member in members)


def test_every_generated_task_has_a_base():
    tasks = {name for name, dataset in registry.datasets.all().items() if dataset.gives != "text"}
    trained_on = {whole(file).data.name for file in BASES}
    assert tasks <= trained_on


def test_a_recipe_is_found_by_name(tmp_path, monkeypatch):
    """A local file comes before one that the zoo brings; so does a base."""
    monkeypatch.chdir(tmp_path)
    assert read_recipe("alibi_maxindex") == read_recipe(RECIPES / "alibi_maxindex.yaml")
    assert read_recipe("recipes/base/copy.yaml", ["model.encoding=rope"]).name == "copy"
    Path("alibi_maxindex.yaml").write_text("base: base/copy\nmodel: {encoding: none}\n")
    assert read_recipe("alibi_maxindex").data.name == "copy"
    Path("recipes/base").mkdir(parents=True)
    Path("recipes/base/copy.yaml").write_text((RECIPES / "base" / "sort.yaml").read_text())
    assert read_recipe("alibi_maxindex").data.name == "sort"
    with pytest.raises(InputError, match=r"did you mean base/maxindex.yaml\?"):
        read_recipe("maxindx")


@pytest.mark.launch
def test_recipes_come_along_in_a_wheel(tmp_path):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    source = tmp_path / "source"  # what `git clone` gives; building writes into it
    shutil.copytree(RECIPES.parent / "zoo", source / "zoo", symlinks=True)
    shutil.copytree(RECIPES, source / "recipes")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(RECIPES.parent / name, source)
    subprocess.run([*pip, "wheel", source, "--no-deps", "--no-build-isolation", "-w", tmp_path], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", tmp_path / "site", wheel], check=True)
    small = ["trainer.max_steps=2", "optimizer.warmup_steps=1", "evaluate.samples=16", "logging=[csv]"]
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "fit", "alibi_maxindex", *(f"--set={one}" for one in small)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "runs" / "alibi_maxindex" / "card.json").is_file()
