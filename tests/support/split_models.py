"""Losses of models whose sequences several processes compute together, next to those of one process.

A patch of `forked_runs.py`: `zoo list` then tries the subjects of the contract and prints, as JSON, the
largest difference of each, or the error that it raises.
"""

import json
import sys
from copy import deepcopy
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from test_contract import DEFAULTS, OTHERS, plugins_known

from zoo.commands import list_things
from zoo.contract.subject import LENGTH, Subject
from zoo.launch.team import join
from zoo.models.plans import choose

EQUAL = 1e-5
MODELS = [
    {"kv_shift": True, "num_kv_heads": 2, "window": 5},
    {"kv_shift": True, "output_gate": "headwise", "head_norm": True},
    {"num_kv_heads": 3, "norm_position": "post", "embedding_norm": "with_positions"},
    {"window": [4, None], "sink_tokens": 1, "logit_scale": "temperature"},
    {"parallel_residual": True, "qk_norm": True, "kernel": "reference"},
]
AROUND = [("rope", "decoder"), ("fox", "decoder"), ("alibi", "decoder"), ("path", "decoder"),
          ("rope", "encoder")]  # fmt: skip
# More than half of the rows of a process: it computes them in blocks.
choose.BLOCK_ELEMENTS = 0


def subjects(size):
    """The subjects of the contract, and other models around some of them. Options and lists for two processes
    stand for those of more."""
    yield from (*DEFAULTS, *(OTHERS if size == 2 else ()))
    for spec, kind in AROUND:
        models = (Subject(spec, kind, config=config) for config in MODELS)
        yield from (one for one in models if kind == "decoder" or "sink_tokens" not in one.config)


def cases(subject, length):
    """Models, and the arguments of their forward passes."""
    first = torch.arange(length) // 13 * 13
    yield subject.model(), {"documents": torch.stack((first, first.clamp(max=13)))}
    for setting in subject.windows(4):
        yield subject.model(**setting), {}


def difference(model, team, split, row, given):
    """The largest difference of the losses."""

    def losses(one, by):
        one.split = by
        return one(row, targets=row.roll(-1, 1), reduction="none", **given)

    def farthest(one):
        got, expected = losses(one, split), losses(one, None)
        finite = expected.isfinite()
        assert torch.equal(finite, got.isfinite())
        return max(team.gather((got - expected)[finite].abs().max().item()))

    # A fault stays in float64, and the rounding of large logits does not.
    found = farthest(model)
    return found if found <= EQUAL else farthest(deepcopy(model).double())


@torch.inference_mode()
def verb(options):
    found = {}
    with join(None, "cpu") as team, plugins_known():
        split = team.sequence_split()
        for subject in subjects(team.size):
            row = subject.tokens(2, 4 * LENGTH)
            try:
                found[str(subject)] = max(
                    difference(model, team, split, row, given)
                    for model, given in cases(subject, row.shape[1])
                )
            except Exception as error:  # in all processes
                found[str(subject)] = f"{type(error).__name__}: {error}"
        if team.rank == 0:
            print(json.dumps(found))


list_things.run = verb
