"""Metrics are exact, and the same on any number of devices."""

import torch
from killed_runs import texts

from zoo.tasks.language_modelling import perplexity
from zoo.training.module import exact_mean


def test_sums_are_float64():
    metric = exact_mean()
    # In float32 a sum of 2^24 no longer changes by 1.
    metric.update(torch.tensor([float(2**24)]))
    for _ in range(8):
        metric.update(torch.ones(1))
    assert metric.mean_value.item() == 2**24 + 8
    assert metric.compute().dtype == torch.float64


def test_batches_of_unequal_size_are_weighted_by_their_tokens():
    metric = exact_mean()
    metric.update(torch.zeros(30))
    metric.update(torch.full((10,), 4.0))
    assert metric.compute().item() == 1.0
    metric.update(torch.zeros(0))
    assert metric.compute().item() == 1.0


def test_a_rate_over_nothing_is_not_a_number():
    assert exact_mean().compute().isnan()


def test_a_huge_loss_is_an_infinite_perplexity():
    assert perplexity(700) < perplexity(1e6) == float("inf")


WORKER = """
import os, torch, torch.distributed as dist
from zoo.training.module import exact_mean
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="env://", rank=rank, world_size=2)
loss, right, alone = exact_mean(), exact_mean(), exact_mean(sync_on_compute=False)
for metric in (loss, alone):
    metric.update(torch.full((3,), 1.0) if rank == 0 else torch.full((1,), 5.0))
right.update(torch.tensor([True, True, False]) if rank == 0 else torch.tensor([False]))
print(loss.compute().item(), right.compute().item(), alone.compute().item())
dist.destroy_process_group()
raise SystemExit
"""


def test_two_processes_add_up(tmp_path, forks):
    (tmp_path / "worker.py").write_text(WORKER)
    log = tmp_path / "log"
    assert forks.wait(forks.start([], tmp_path, log, 2, patch=tmp_path / "worker.py")) == [0, 0], texts(log)
    computed = [[float(one) for one in (tmp_path / f"log.{r}").read_text().split()] for r in range(2)]
    # A mean of the two means would be 3.
    assert computed == [[2.0, 0.5, 1.0], [2.0, 0.5, 5.0]]
