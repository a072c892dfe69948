"""A run of two steps, and what the tests do to its checkpoint."""

import pytest
import torch

from zoo.errors import InputError
from zoo.recipe import resolve
from zoo.reports.fit import fit

MAPPING = {
    "name": "small",
    "model": {"kind": "encoder", "encoding": "alibi", "d_model": 16, "num_layers": 1, "num_heads": 2},
    "data": {"name": "max_index", "sequence_length": 8, "batch_size": 4},
    "optimizer": {"lr": 1e-3, "warmup_steps": 2, "schedule": "constant"},
    "trainer": {"max_steps": 2, "accelerator": "cpu", "limit_val_batches": 1},
    "checkpoint": {"every_n_steps": 2},
    "evaluate": {"samples": 8, "lengths": [8]},
    "logging": ["csv"],
}
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
