"""Losses, judgements, optimizers and schedules of tasks."""

import math

import pytest
import torch
from tiny_recipes import tiny_mapping

from zoo.models.vocabulary_loss import token_losses
from zoo.recipe import resolve
from zoo.schedules import last_other_rate, lr_factor
from zoo.tasks import build, build_task
from zoo.tasks.max_index import judge

BASE = tiny_mapping({"name": "sample", "sequence_length": 8, "vocab_size": 300}, trainer={"max_steps": 10})


def task(*sets, vocab_size=300):
    return build_task(resolve(BASE, sets), vocab_size)


def test_token_losses_against_a_loop():
    logits = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[0, 6, -100, 2, 3], [-100, -100, 1, 1, 5]])
    losses = token_losses(logits, targets)
    for b in range(2):
        for t in range(5):
            target = targets[b, t]
            expected = 0.0 if target == -100 else -logits[b, t].log_softmax(-1)[target].item()
            assert losses[b, t].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("start", "variance"), [("0.02", 0), ("auto", 1)])
def test_the_initial_loss_is_that_of_a_guess(start, variance):
    """Logits from N(0, v) add v/2 to the loss of a uniform guess."""
    made = task(f"model.init_std={start}", "model.tie_embeddings=false")
    tokens = torch.randint(300, (64, 8), generator=torch.Generator().manual_seed(0))
    loss = made.loss({"tokens": tokens, "targets": tokens.roll(-1, 1)})
    assert loss.item() == pytest.approx(math.log(300) + variance / 2, abs=0.1)


def test_the_masked_loss_of_a_batch_is_the_mean_over_its_parts():
    """Divided by the expected number of targets, parts with unequal numbers have equal weight."""
    made = task("model.kind=encoder").eval()
    tokens = torch.randint(300, (4, 8), generator=torch.Generator().manual_seed(0))
    targets = torch.full_like(tokens, -100)
    targets[0, :5], targets[3, 1] = 7, 9
    whole = made.loss({"tokens": tokens, "targets": targets})
    parts = [
        made.loss({"tokens": tokens[rows], "targets": targets[rows]}) for rows in (slice(0, 2), slice(2, 4))
    ]
    assert whole.item() == pytest.approx(sum(map(torch.Tensor.item, parts)) / 2, rel=1e-6)
    assert made.loss({"tokens": tokens, "targets": torch.full_like(tokens, -100)}).item() == 0.0


def test_index_and_value_are_judged_separately():
    tokens = torch.tensor([[3, 9, 1, 9], [3, 9, 1, 9], [3, 9, 1, 9]])
    answer = torch.tensor([1, 1, 1])
    logits = torch.eye(4)[[1, 3, 0]]
    index, value = judge(logits, {"tokens": tokens, "answer": answer})
    assert index.tolist() == [1, 0, 0]
    assert value.tolist() == [1, 1, 0]


def test_tied_pointers_count_as_a_guess():
    batch = {
        "tokens": torch.tensor([[9, 9, 1, 9], [9, 2, 1, 9], [9, 2, 1, 9]]),
        "answer": torch.zeros(3).long(),
    }
    # Tied over the three largest, tied over all, and different by rounding alone.
    logits = torch.tensor([[5.0, 5, 0, 5], [5, 5, 5, 5], [5 + 1e-6, 0, 0, 5]])
    index, value = judge(logits, batch)
    assert index.tolist() == pytest.approx([1 / 3, 1 / 4, 1 / 2])
    assert value.tolist() == pytest.approx([1, 1 / 2, 1])


def test_a_pointer_of_nan_is_wrong():
    batch = {"tokens": torch.tensor([[3, 9, 1]]), "answer": torch.tensor([1])}
    index, value = judge(torch.full((1, 3), float("nan")), batch)
    assert index.tolist() == value.tolist() == [0]


def test_max_index_is_judged_apart_beyond_the_trained_length():
    made = task(
        "data={name: max_index, sequence_length: 4, batch_size: 4}", "model.kind=encoder", vocab_size=20
    )
    tokens = torch.tensor([[9, 3, 1, 2, 5, 4], [1, 3, 1, 2, 5, 5], [1, 1, 1, 8, 5, 8]])
    made.model.forward = lambda tokens: torch.eye(6)[[0, 5, 5]]
    judged = made.judge({"tokens": tokens, "answer": torch.tensor([0, 4, 3])})
    assert next(iter(judged)) == "accuracy" and judged["accuracy"].tolist() == [1, 0, 0]
    assert judged["value_accuracy"].tolist() == [1, 1, 1]
    apart = {name: values.nan_to_num(-1).tolist() for name, values in judged.items()}
    assert apart["accuracy_within"] == [1, -1, 0] and apart["accuracy_beyond"] == [-1, 0, -1]
    assert apart["value_accuracy_within"] == [1, -1, 1] and apart["value_accuracy_beyond"] == [-1, 1, -1]


@pytest.mark.parametrize("schedule, middle", [("cosine", 0.55), ("linear", 0.55), ("constant", 1.0)])
def test_the_learning_rate_rises_and_falls(schedule, middle):
    config = resolve(BASE, [f"optimizer.schedule={schedule}", "optimizer.warmup_steps=10"]).optimizer
    rates = [lr_factor(config, step, 111) for step in range(111)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == rates[10] == 1.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[60] == pytest.approx(middle)
    assert rates[110] == pytest.approx(1.0 if schedule == "constant" else 0.1)
    assert rates[-1] == lr_factor(config, 10**6, 111)


def test_warm_up_stable_decay():
    sets = ["optimizer.schedule=wsd", "optimizer.warmup_steps=10", "optimizer.decay_fraction=0.25"]
    config = resolve(BASE, sets).optimizer
    rates = [lr_factor(config, step, 100) for step in range(100)]
    assert rates[:10] == [(step + 1) / 10 for step in range(10)]
    assert rates[10:75] == [1.0] * 65
    # MiniCPM's f(s) with the linear form: from 1 before the decay to final_lr at the last step.
    assert rates[74:] == pytest.approx([1 - 0.9 * done / 25 for done in range(26)])
    assert rates[-1] == pytest.approx(0.1) == lr_factor(config, 10**6, 100)
    # A decay that would begin within the warm-up begins after it.
    assert lr_factor(config, 10, 13) == 1.0 and lr_factor(config, 11, 13) == pytest.approx(0.55)


@pytest.mark.parametrize("schedule, steps", [("constant", 60), ("wsd", 32), ("cosine", 11), ("linear", 11)])
def test_for_how_many_steps_the_rates_do_not_depend_on_the_length(schedule, steps):
    sets = [f"optimizer.schedule={schedule}", "optimizer.warmup_steps=10"]
    config = resolve(BASE, sets).optimizer
    # wsd: of 40 steps the last fifth decays, from step 32 on.
    assert last_other_rate(config, steps, 40, 60) is None is last_other_rate(config, 60, 40, 40)
    assert schedule == "constant" or last_other_rate(config, steps + 1, 40, 60) == steps


def test_a_warmup_may_be_longer_than_the_run_or_none_at_all():
    config = resolve(BASE, ["optimizer.warmup_steps=100", "trainer.max_steps=10"]).optimizer
    assert [lr_factor(config, step, 10) for step in (0, 9)] == pytest.approx([0.01, 0.1])
    assert lr_factor(resolve(BASE, ["optimizer.warmup_steps=0"]).optimizer, 0, 10) == 1.0


def test_build_takes_a_recipe_a_mapping_or_a_file(tmp_path):
    import yaml

    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(BASE))
    models = [
        build(BASE), build(resolve(BASE)), build(tmp_path / "tiny.yaml"), build(BASE, ["model.d_model=16"]),
    ]  # fmt: skip
    weights = [model.state_dict() for model in models]
    assert all(torch.equal(value, weights[0][key]) for other in weights for key, value in other.items())
    assert models[0](torch.zeros(1, 4, dtype=torch.long)).shape == (1, 4, 300)
    assert build(BASE, vocab_size=11)(torch.zeros(1, 4, dtype=torch.long)).shape == (1, 4, 11)
