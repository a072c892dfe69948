"""Sequences that several processes compute together."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from zoo.evaluation.protocols.protocol import Execution
from zoo.launch.team import Team, alone
from zoo.models.sequence_split import GatheredRows, SequenceSplit
from zoo.recipe.sections import EvaluateConfig

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "least"), [(2, 200), (3, 100)])
def test_losses_are_those_of_one_process(forks, here, processes, least):
    """Every encoding, with options, around others and in lists; windows, sinks, documents, other models."""
    text = forks.run(["list"], here, "split", processes, SUPPORT / "split_models.py")
    found = json.loads(text.splitlines()[-1])
    assert len(found) > least
    assert not {name: one for name, one in found.items() if isinstance(one, str) or not one <= 1e-5}


@pytest.mark.slow
def test_two_steps_in_parts_are_those_of_one_process(forks, here):
    """Every encoding, each sequence and then each model in two processes; the subjects share one launch."""
    text = forks.run(["list"], here, "parts", 2, SUPPORT / "trained_in_parts.py")
    found = json.loads(text.splitlines()[-1])
    assert len(found) > 100
    assert not {name: one for name, one in found.items() if isinstance(one, str) or not max(one) <= 1e-6}


@pytest.mark.parametrize("length", [8, 29, 1000])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_processes_have_as_many_pairs(length, size):
    rounds = SequenceSplit(0, size, None, None).rounds(length, 2)
    blocks = [block for one in rounds for block in one]
    rows = [row for block in sorted(blocks, key=lambda block: block.start) for row in range(length)[block]]
    assert rows == list(range(length)) and all(block.stop > block.start for block in blocks)
    pairs = [sum(row + 1 for one in rounds for row in range(length)[one[rank]]) for rank in range(size)]
    # A block has one row more or less than another.
    assert max(pairs) - min(pairs) <= 2 * length


class Alone(SequenceSplit):
    """One of several processes; the others have the rows of `whole`."""

    def __init__(self, rank, size, whole):
        super().__init__(rank, size, None, None)
        self.whole = whole

    def gather(self, own, dim, blocks):
        assert torch.equal(own, self.whole[blocks[self.rank]])
        return torch.cat([self.whole[block] for block in sorted(blocks, key=lambda block: block.start)])


@pytest.mark.parametrize("rank", range(3))
def test_rows_of_all_processes_are_gathered_round_by_round(rank):
    whole = torch.randn(26, 4)
    split = Alone(rank, 3, whole)
    rows = GatheredRows(split, 26)
    for blocks in split.rounds(26, 2):
        own = blocks[rank]
        rows.begin(blocks, own.stop)
        assert torch.equal(rows.append("keys", whole[own], 0), whole[: own.stop])


@pytest.mark.parametrize("asked, sequences, shared", [
    ("auto", 2, True), ("auto", 3, False), (True, 100, True), (False, 1, False),
])  # fmt: skip
def test_processes_share_a_sequence_where_there_are_fewer_sequences(asked, sequences, shared):
    task = SimpleNamespace(recipe=SimpleNamespace(evaluate=EvaluateConfig(split_sequence=asked)))
    team = Team(0, 3, torch.device("cpu"))
    assert Execution(team, print, task=task).splits(sequences) is shared
    assert not Execution(alone(team.device), print, task=task).splits(sequences)
    assert not Execution(team, print).splits(sequences)  # without a task each sequence is in one process
