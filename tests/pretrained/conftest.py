"""Checkpoints whose weights are large, so that every one of them moves the logits."""

import pytest
import torch

from zoo.data.text.tokenizer import train_tokenizer
from zoo.pretrained.export import checkpoint_content
from zoo.recipe import resolve
from zoo.runs.checkpoint_file import write_safetensors
from zoo.tasks import build_task

TEXTS = [
    "the cat sat on the mat and the dog on the log",
    "one two three four five six seven <|endoftext|> eight",
]
CARD = {
    "name": "tiny_text", "encoding": "alibi", "task": "language_modelling",
    "fingerprint": {"corpus": "c" * 64, "tokenizer": "t" * 64}, "steps": 7, "tokens_seen": 448,
    "parameters": {"positional": 0, "other": 5, "total": 5}, "git_commit": "abc",
}  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path, mapping):
    """A checkpoint of a recipe with changes, at drawn weights, next to its tokenizer; and its task."""

    def checkpoint(*sets, kind="text", folder="run"):
        task = build_task(resolve(mapping(kind), ["model.num_layers=2", *sets]), 300).eval()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, parameter in task.model.named_parameters():
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(1 + 0.1 * drawn if name.endswith("norm.weight") else 0.4 * drawn)
        place = tmp_path / folder
        place.mkdir()
        train_tokenizer(TEXTS, 300).save(place / "tokenizer.json")
        write_safetensors(
            place / "model.safetensors", checkpoint_content(task, CARD), dict(task.state_dict())
        )
        return place, task

    return checkpoint
