"""The plan of a training: its numbers are those of the model and the data."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from zoo import build, cli
from zoo.data import open_data, source
from zoo.recipe import dump
from zoo.training.plan import Plan, plan_of, short

SETS = (
    (), ("model.encoding=learned",), ("model.encoding=t5", "model.activation=swiglu"),
    ("model.tie_embeddings=false", "model.encoding=shaw"), ("model.d_ff=48",),
)  # fmt: skip


@pytest.mark.parametrize("sets", SETS)
def test_parameters_are_those_of_the_model(recipe, sets):
    planned = recipe("max_index", *sets)
    plan, model = plan_of(planned), build(planned)
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}
    assert plan.parameters == sum(sizes.values())
    assert plan.encoding == sum(size for name, size in sizes.items() if name.startswith("encoding."))
    assert plan.d_ff == model.blocks[0].feed_forward.down.in_features
    assert plan.vocab_size == model.tokens.num_embeddings and plan.epochs is None


def test_epochs_are_known_once_the_text_is_tokenized(recipe, tmp_path):
    planned = recipe("text", f"data.cache={tmp_path}", "trainer.max_steps=100000")
    before = plan_of(planned)
    assert before.epochs is None and before.warnings() == []
    opened = open_data(planned)
    plan, data = plan_of(planned), planned.data
    assert plan == Plan.of(planned, build(planned, vocab_size=opened.vocab_size), opened)
    assert plan.corpus_tokens == len(opened.stream("train"))
    assert plan.tokens == 100000 * data.batch_size * data.sequence_length
    assert plan.warnings() == [
        f"warning: the corpus repeats: {plan.epochs:.3g} epochs of {short(plan.corpus_tokens)} tokens"
    ]


def test_a_long_validation_is_cut_unless_all_is_asked_for(recipe, monkeypatch):
    whole = open_data(recipe("text", "trainer.limit_val_batches=null"))
    size, step = len(whole.dataset("valid")), whole.recipe.tokens_per_step
    assert whole.valid_size() == size > 3 * whole.recipe.data.batch_size
    monkeypatch.setattr(source, "VALID_TOKENS", 3 * step + 1)
    assert whole.valid_size() == 3 * whole.recipe.data.batch_size == sum(map(_rows, whole.valid_loader()))
    assert open_data(recipe("text", "trainer.limit_val_batches=1.0")).valid_size() == size


def _rows(batch):
    return len(batch["tokens"])


def test_the_share_of_validation_is_that_of_the_operations(recipe):
    """Counted in a training step and in a validation, of products alone."""
    planned = recipe(
        "max_index", "trainer.max_steps=8", "checkpoint.every_n_steps=4", "trainer.limit_val_batches=2"
    )
    task, opened = build(planned), open_data(planned)
    plan = Plan.of(planned, task, opened)
    tokens = next(iter(opened.train_loader()))["tokens"]
    with FlopCounterMode(display=False) as step:
        task(tokens).sum().backward()
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        task(tokens)
    training, validation = 8 * step.get_total_flops(), 2 * 2 * forward.get_total_flops()
    assert plan.validations == 2 and plan.valid_tokens == 2 * planned.tokens_per_step
    assert plan.validation_share == pytest.approx(validation / (training + validation), rel=0.05)


# By width: GPT-3 (arXiv:2005.14165), BERT and FoX, Llama 2 7B, Llama 3 405B, and the grids of the zoo.
PUBLISHED = (
    "768 6e-4, 1024 3e-4, 2048 2e-4, 4096 1.2e-4, 5140 1e-4, 12288 6e-5, 768 1e-4, 768 2e-3, 4096 3e-4, "
)
PUBLISHED += "16384 8e-5, 16 1e-3, 64 1e-3, 64 3e-2, 128 1e-2, 256 3e-3"


def test_a_learning_rate_far_from_published_ones_is_a_warning(recipe):
    def warnings(run, name="adamw", **more):
        width, rate = run.split()
        planned = recipe("max_index", f"model.d_model={width}", f"optimizer={{lr: {rate}, name: {name}}}")
        return Plan(planned.model_copy(update=more), 0, 0, 0, 0, None).warnings()

    assert not any(map(warnings, PUBLISHED.split(", ")))
    (high,), (low,) = warnings("768 1e-2"), warnings("4096 1e-5")
    assert "lr=0.01 is 12.8 times" in high and high.endswith("--set optimizer.lr=0.0008") and "0.0683" in low
    assert not warnings("768 1e-2", "muon") and not warnings("4096 1e-5", init_from="runs/one")


def test_devices_and_accumulation_divide_the_batch(recipe):
    sets = ["trainer.devices=2", "trainer.accumulate_grad_batches=2", "data.batch_size=12"]
    one, parts = (plan_of(recipe("max_index", *some)) for some in (sets[2:], sets))
    assert (one.sequences, parts.sequences) == (
        12,
        3,
    ) and one.recipe.tokens_per_step == parts.recipe.tokens_per_step


def test_a_missing_tokenizer_leaves_the_vocabulary_open(recipe, tmp_path, capsys):
    gone = recipe("text", "data.tokenizer=no/such/folder/gone", "trainer.max_steps=50")
    plan, known = plan_of(gone), plan_of(recipe("text", f"data.cache={tmp_path}"))
    assert plan.vocab_size is None and plan.parameters == known.parameters - known.embedding
    (tmp_path / "r.yaml").write_text(dump(gone))
    assert cli.main(["show", str(tmp_path / "r.yaml")]) == 0
    shown = capsys.readouterr().out.split("# parameters: ")[1]
    assert "(without the embedding" in shown and f" {short(plan.tokens)} tokens in all\n" in shown
