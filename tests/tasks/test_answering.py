"""Loss and accuracy of a batch of answers, against loops over examples and greedy decoding."""

import math

import pytest
import torch
from tiny_recipes import tiny

from zoo.evaluation.measurement import flat_rows
from zoo.evaluation.store import read_measurements
from zoo.reports.fit import fit
from zoo.tasks import build_task
from zoo.tasks.answering import Answering, answer_losses, judge

VOCABULARY = 11


def copying(*sets):
    trainer = {"max_steps": 4, "accelerator": "cpu", "limit_val_batches": 4}
    rest = {"trainer": trainer, "evaluate": {"samples": 8}, "logging": ["csv"]}
    return tiny({"name": "copy", "sequence_length": 12}, *sets, encoding="rope", **rest)


@pytest.fixture
def task():
    made = build_task(copying(), VOCABULARY)
    assert isinstance(made, Answering)
    return made


def batch_of(*pairs):
    """Prompts and answers of unequal lengths as a batch."""
    longest = max(len(prompt) + len(answer) for prompt, answer in pairs) - 1
    tokens, targets = torch.zeros(len(pairs), longest).long(), torch.full((len(pairs), longest), -100)
    for row, (prompt, answer) in enumerate(pairs):
        whole = torch.tensor(prompt + answer)
        tokens[row, : len(whole) - 1] = whole[:-1]
        targets[row, len(prompt) - 1 : len(whole) - 1] = torch.tensor(answer)
    return {"tokens": tokens, "targets": targets}


PAIRS = [([3, 1, 4], [1, 5]), ([9, 2], [6, 5, 3, 5]), ([8, 9, 7, 9, 3], [2])]


def test_every_example_weighs_the_same(task):
    batch = batch_of(*PAIRS)
    logp = task.model(batch["tokens"]).log_softmax(-1)
    wanted = []
    for row, (prompt, answer) in enumerate(PAIRS):
        losses = [-logp[row, len(prompt) - 1 + i, token] for i, token in enumerate(answer)]
        wanted.append(sum(losses) / len(losses))
    assert task.loss(batch).item() == pytest.approx(torch.stack(wanted).mean().item(), rel=1e-5)


def test_the_loss_of_a_batch_is_the_mean_over_its_shares(task):
    """Gradients are averaged over devices, each of which divides by its own number of examples."""
    pairs = [*PAIRS, ([1], [2, 3, 4, 5, 6, 7])]
    halves = [task.loss(batch_of(*pairs[:2])), task.loss(batch_of(*pairs[2:]))]
    assert task.loss(batch_of(*pairs)).item() == pytest.approx(sum(halves).item() / 2, rel=1e-5)


def decoded_greedily(model, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(model(torch.tensor([tokens]))[0, -1].argmax().item())
    return tokens[len(prompt) :]


def test_exact_match_agrees_with_greedy_decoding(task):
    """Answers that the model would write itself are right; with one token changed they are wrong."""
    task.eval()
    with torch.no_grad():
        prompts = {2: [3, 1, 4], 4: [9, 2], 1: [8, 9, 7, 9, 3], 3: [5]}
        own = [(prompt, decoded_greedily(task.model, prompt, count)) for count, prompt in prompts.items()]
        changed = [(prompt, [(answer[0] + 1) % VOCABULARY, *answer[1:]]) for prompt, answer in own]
        right = task.judge(batch_of(*own))
        assert right["accuracy"].tolist() == right["token_accuracy"].tolist() == [1, 1, 1, 1]
        wrong = task.judge(batch_of(*changed))
        assert wrong["accuracy"].tolist() == [0, 0, 0, 0]
        assert wrong["token_accuracy"][2] == 0 and (wrong["token_accuracy"] < 1).all()
        for prompt, answer in changed:
            assert decoded_greedily(task.model, prompt, len(answer)) != answer


def test_token_accuracy_is_the_share_of_each_answer():
    targets = torch.tensor([[-100, 3, 4, -100], [2, 2, 2, 2]])
    logits = torch.nn.functional.one_hot(torch.tensor([3, 5, 2, 2, 2, 1]), 6).float()
    judged = judge(logits, targets)
    assert judged["token_accuracy"].tolist() == [0.5, 0.75]
    assert judged["accuracy"].tolist() == [0, 0]


def test_an_answer_of_nan_logits_is_wrong():
    targets = torch.tensor([[3, 4]])
    assert judge(torch.full((2, 6), float("nan")), targets)["token_accuracy"].tolist() == [0]
    assert answer_losses(torch.full((2, 6), float("nan")), targets).isnan().all()


def test_a_run_logs_its_measures_and_is_evaluated(here):
    folder = fit(copying())
    header, *lines = (folder / "metrics.csv").read_text().splitlines()
    last = dict(zip(header.split(","), lines[-1].split(","), strict=True))
    assert {"val/loss", "val/accuracy", "val/token_accuracy"} <= last.keys()
    assert math.isfinite(float(last["val/loss"])) and 0 <= float(last["val/token_accuracy"]) <= 1
    assert (folder / "checkpoints" / "best.ckpt").is_file()
    rows = flat_rows(read_measurements(folder))
    assert [row["length"] for row in rows] == [12, 24, 48]
    assert all(0 <= row["accuracy_low"] <= row["accuracy"] <= row["accuracy_high"] <= 1 for row in rows)
