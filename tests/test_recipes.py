"""Every recipe that the zoo ships reads, builds and takes a step."""

from pathlib import Path

import pytest
import torch

from zoo import cli, registry
from zoo.data import open_data
from zoo.recipe import read_recipe
from zoo.tasks import build_task
from zoo.training.fit import fit

FILES = sorted((Path(__file__).parents[1] / "recipes").glob("*.yaml"))
BASES = sorted((Path(__file__).parents[1] / "recipes" / "base").glob("*.yaml"))
SMALL = [
    "data.sequence_length=16", "data.batch_size=4", "data.workers=0", "evaluate.lengths=[16]",
    "model.d_model=32", "trainer.accelerator=cpu", "trainer.devices=1",
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
    return root


def small(recipe, texts):
    """What shrinks a recipe to a test; the sizes of its data only where it has them."""
    sets = list(SMALL)
    if recipe.task.name == "answering":
        # As long as it says: not every example fits into less.
        sets.remove("data.sequence_length=16")
        sets[sets.index("evaluate.lengths=[16]")] = f"evaluate.lengths=[{recipe.data.sequence_length}]"
    if hasattr(recipe.data, "vocab_size"):
        sets += [f"data.root={texts}", f"data.cache={texts / 'cache'}", "data.vocab_size=300"]
    if recipe.data.name == "sample":
        sets += ["data.documents=8", "data.words=80"]
    return sets


def test_there_are_recipes():
    assert len(FILES) >= 8


@pytest.mark.parametrize("file", [*FILES, *BASES], ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_recipe_reads_builds_and_takes_a_step(file, texts):
    whole = read_recipe(file)
    assert whole.name == file.stem
    # A base stands for all encodings that can be laid over it.
    encoding = ["model.encoding=learned"] if file in BASES else []
    recipe = read_recipe(file, [*small(whole, texts), *encoding])
    source = open_data(recipe)
    task = build_task(recipe, source.vocab_size)
    batch = next(iter(source.train_loader()))
    assert batch["tokens"].shape == (4, recipe.data.sequence_length)
    made = task.configure_optimizers()
    optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    before = {name: value.clone() for name, value in task.named_parameters()}
    task.train()
    loss = task.training_step(batch, 0)
    loss.backward()
    optimizer.step()
    schedule.step()
    assert loss.isfinite()
    # The step reaches everything, the encoding's own parameters among them.
    still = [name for name, value in task.named_parameters() if torch.equal(value, before[name])]
    assert not still


@pytest.mark.parametrize("file", [f for f in FILES if read_recipe(f).init_from], ids=lambda file: file.stem)
def test_a_recipe_that_starts_from_another_names_one_whose_weights_fit(file, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = read_recipe(file)
    first = read_recipe(file.with_name(f"{Path(recipe.init_from).name}.yaml"))
    assert recipe.init_from == f"runs/{first.name}"
    steps = ["trainer.max_steps=2", "evaluate.max_tokens=64", "logging=[]"]
    for one in (first, recipe):
        folder = fit(read_recipe(file.with_name(f"{one.name}.yaml"), [*small(one, texts), *steps]))
        assert folder == Path("runs") / one.name


@pytest.mark.parametrize("file", [*FILES, *BASES], ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_recipe_is_scored_from_its_own_length_to_four_times_that(file):
    recipe = read_recipe(file)
    assert max(recipe.evaluate.lengths) >= 4 * recipe.data.sequence_length
    assert min(recipe.evaluate.lengths) == recipe.data.sequence_length


def test_recipes_over_one_base_differ_in_the_encoding_alone():
    groups = {}
    for file in FILES:
        text = file.read_text()
        base = next((line for line in text.splitlines() if line.startswith("base:")), None)
        resolved = read_recipe(file).as_dict()
        resolved.pop("name")
        resolved["model"].pop("encoding")
        # One that goes on from another run is not trained for as long.
        key = base, resolved["model"]["kind"], resolved["init_from"]
        groups.setdefault(key, []).append(resolved)
    for members in groups.values():
        assert all(member == members[0] for member in members)


def test_every_generated_task_has_a_base():
    tasks = {name for name, dataset in registry.datasets.all().items() if dataset.gives != "text"}
    trained_on = {read_recipe(file).data.name for file in BASES}
    assert tasks <= trained_on


@pytest.mark.parametrize(
    "file", [f for f in BASES if read_recipe(f).task.name == "answering"], ids=lambda f: f.stem
)
def test_a_base_says_its_command_what_it_is_and_what_came_out(file):
    comments = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert comments[0].startswith(
        f"# python -m zoo fit --recipe recipes/base/{file.name} --set model.encoding="
    )
    assert len(comments) >= 3


def test_bases_are_listed_beside_the_recipes(capsys):
    assert cli.main(["list", "recipes"]) == 0
    output = capsys.readouterr().out
    assert all(f"recipes/{file.stem}.yaml" in output for file in FILES)
    assert all(f"recipes/base/{file.stem}.yaml" in output for file in BASES)
    assert cli.main(["list", "recipes", "base/m*"]) == 0
    assert "max_index" in capsys.readouterr().out
