"""The log and the checkpoints of a run folder, and the arguments that set keys."""

import csv

import torch


def logged(folder):
    """The rows of metrics.csv."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [*csv.DictReader(file)]


def saved(folder, name="last"):
    """The content of a checkpoint."""
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)


def leaves(tree, path=()):
    """Every tensor and number of a checkpoint by its path."""
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    else:
        return {path: tree}
    return {key: leaf for name, part in items for key, leaf in leaves(part, (*path, name)).items()}


def assert_same(one, two, parts=("global_step", "state_dict", "optimizer_states")):
    """Parts of two checkpoints are the same, bit for bit."""
    for part in parts:
        a, b = leaves(one[part]), leaves(two[part])
        assert a.keys() == b.keys() and a
        for key in a:
            same = torch.equal(a[key], b[key]) if isinstance(a[key], torch.Tensor) else a[key] == b[key]
            assert same, (part, key)


def settings(*sets):
    """The words that set keys of a recipe: `settings("seed=1")`."""
    return [word for text in sets for word in ("--set", text)]
