"""An imported run is used in the same way as one that was trained here."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
import yaml
from published import publish
from run_files import settings
from tokenizers import Tokenizer, processors

from zoo.cli import main
from zoo.data import open_data
from zoo.recipe import read_recipe

LENGTH, STRIDE, WINDOWS = 31, 16, 40
SCORED = 600
PAIRS = LENGTH + STRIDE * WINDOWS
"""So that the last window is a full one: there `transformers` shortens it, and the zoo begins it earlier."""


@torch.no_grad()
def documented_perplexity(model, tokens, max_length, stride):
    """As the documentation of `transformers` does: https://huggingface.co/docs/transformers/perplexity."""
    total, count, previous_end = 0.0, 0, 0
    for begin in range(0, len(tokens), stride):
        end = min(begin + max_length, len(tokens))
        ids = torch.tensor(tokens[begin:end])[None]
        labels = ids.clone()
        labels[:, : -(end - previous_end)] = -100
        logits = model(ids).logits[0, :-1]
        total += F.cross_entropy(logits, labels[0, 1:], reduction="sum").item()
        count += int((labels[0, 1:] != -100).sum())
        previous_end = end
        if end == len(tokens):
            break
    return math.exp(total / count)


@torch.no_grad()
def test_an_imported_encoder_scores_the_same_masked_tokens_at_every_length(here, cache, capsys):
    """Each window begins with the start token of the tokenizer."""
    theirs = publish("modernbert", here / "published")
    file = here / "published" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    start = ("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[start]
    )
    tokenizer.save(str(file))
    data = ["data.name=sample", "data.documents=12", "data.words=600", f"data.cache={cache}"]
    sets = [part for one in data for part in ("--set", one)]
    assert main(["import", "published", "--name", "ours", *sets]) == 0
    asked = ["--lengths", f"{LENGTH},62", "--set", f"evaluate.max_tokens={SCORED}"]
    assert main(["evaluate", "runs/ours", *asked]) == 0
    rows = json.loads((here / "runs/ours/evaluation/lengths.json").read_text())
    block = open_data(read_recipe(here / "runs/ours/recipe.yaml")).dataset("valid", length=SCORED)[0]
    for row, length in zip(rows, (LENGTH, 62), strict=True):
        total, count = 0.0, 0
        for begin in range(0, SCORED, length - 1):
            some = slice(begin, begin + length - 1)
            ids, wanted = (block[key][some] for key in ("tokens", "targets"))
            if ids[0] != start[1]:
                ids, wanted = (F.pad(x, (1, 0), value=v) for x, v in ((ids, start[1]), (wanted, -100)))
            total += F.cross_entropy(theirs(ids[None]).logits[0], wanted, reduction="sum").item()
            count += int((wanted >= 0).sum())
        assert (row["length"], row["tokens"]) == (length, count)
        assert row["loss_nats"] == pytest.approx(total / count, rel=1e-5) and "bits_per_byte" not in row
    assert rows[0]["tokens"] == rows[1]["tokens"] > 50


@pytest.mark.slow
def test_an_imported_run_is_evaluated_compared_and_trained_on(here, cache, capsys):
    def zoo(*arguments):
        assert main([*arguments]) == 0
        return capsys.readouterr().out

    theirs = publish("llama", here / "published")
    data = ["data.name=sample", "data.documents=12", "data.words=600", f"data.cache={cache}"]
    sets = settings(*data)
    printed = zoo("import", "published", "--name", "llama", *sets)
    assert "runs/llama" in printed.splitlines()[-1]
    run = here / "runs" / "llama"
    common = "--lengths", f"{LENGTH},62", "--set", f"evaluate.max_tokens={PAIRS}"
    protocols = "--protocol", "sliding,nonoverlapping", "--set", f"evaluate.stride={STRIDE}"
    zoo("evaluate", "runs/llama", *common, *protocols)
    rows = json.loads((run / "evaluation" / "lengths.json").read_text())
    ours = next(row for row in rows if row["protocol"] == "sliding" and row["length"] == LENGTH)
    source = open_data(read_recipe(run / "recipe.yaml", [f"data.tokenizer={run / 'tokenizer.json'}"]))
    tokens = source.stream("valid")[: PAIRS + 1].tolist()
    documented = documented_perplexity(theirs, tokens, LENGTH + 1, STRIDE)
    assert ours["perplexity"] == pytest.approx(documented, rel=1e-4)

    for reading in (
        ("model.encoding.scaling=yarn", "model.encoding.factor=4"),
        ("model.encoding=rerope",),
        ("model.encoding={name: self_extend, window: 8}",),
    ):
        zoo("evaluate", "runs/llama", *common, *settings(*reading))
    printed = zoo("compare", "runs/llama")
    for label in ("rope scaling=yarn factor=4", "rerope", "self_extend"):
        assert label in printed

    # Beside another of another tokenizer, which the card knows nothing of either; and asked in plain words.
    publish("pythia", here / "pythia")
    zoo("import", "pythia", "--name", "neox", *sets)
    zoo("evaluate", "runs/neox", *common)
    printed = zoo("compare", "--models", "runs/llama", "runs/neox")
    assert "trained on: not known" not in printed  # it is so of both, and no difference
    assert "LlamaForCausalLM in llama" in printed and "no ranking at 62: one document was scored" in printed
    asked = "--protocol", "prompts", "--lengths", "300", "--set", "evaluate.samples=4"
    zoo("evaluate", "runs/llama", *asked)
    rows = json.loads((run / "evaluation" / "lengths.json").read_text())
    (needle, *_) = [row for row in rows if row["parameters"].get("questions", {}).get("name") == "needle"]
    assert needle["examples"] == 4 and needle["accuracy"] == 0.0 and needle["token_accuracy"] >= 0.0

    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    recipe |= {"name": "drope", "init_from": "runs/llama"}
    recipe["model"]["encoding"] = "none"
    recipe["trainer"] = {"max_steps": 2, "accelerator": "cpu"}
    recipe["optimizer"] = {"lr": 1e-4, "warmup_steps": 1}
    (here / "drope.yaml").write_text(yaml.safe_dump(recipe))
    zoo("fit", "drope.yaml", "--set", "evaluate.max_tokens=256")
    assert (
        json.loads((here / "runs" / "drope" / "card.json").read_text())["init_from"]["path"] == "runs/llama"
    )
