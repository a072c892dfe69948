"""A run of two steps, and what the tests do to its checkpoint."""

import pytest
import torch
from tiny_recipes import MAX_INDEX

from zoo.errors import InputError
from zoo.recipe import resolve
from zoo.reports.fit import fit

MAPPING = {
    **MAX_INDEX, "name": "small", "optimizer": {**MAX_INDEX["optimizer"], "schedule": "constant"},
    "trainer": {"max_steps": 2, "accelerator": "cpu", "limit_val_batches": 1},
    "checkpoint": {"every_n_steps": 2}, "evaluate": {"samples": 8, "lengths": [8]},
}  # fmt: skip
LONGER = ["trainer.max_steps=4"]


def change(file, how):
    """Load a checkpoint, have it changed, and save it as whole as it was."""
    content = torch.load(file, weights_only=True)
    how(content)
    torch.save(content, file)


def resume(folder, *sets):
    return fit(resolve(MAPPING, [*LONGER, *sets]), out=folder, resume=True)


def refused(act, *words):
    """That an act ends with one message which says all of this."""
    with pytest.raises(InputError) as caught:
        act()
    text = str(caught.value)
    for word in words:
        assert word in text, text
    assert "Traceback" not in text
    return text
