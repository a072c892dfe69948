"""Shards of a checkpoint: read as written, damage is reported, a failed save keeps the checkpoint before."""

import re

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from zoo.errors import InputError
from zoo.recipe import Recipe
from zoo.runs import checkpoint_shards
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.tasks import build_task
from zoo.training.checkpoints import AtomicCheckpointIO
from zoo.training.strategy import FullyShardedStrategy


@pytest.fixture
def one_process():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.fixture
def save(one_process, recipe: Recipe, tmp_path, monkeypatch):
    """Writes a checkpoint in shards, of a step; returns its file and its weights."""
    made = recipe("text", "model.encoding=learned")
    strategy = FullyShardedStrategy(sharded=True)
    strategy._checkpoint_io = AtomicCheckpointIO()
    monkeypatch.setattr(FullyShardedStrategy, "is_global_zero", True)

    def save(step=7, name="last.ckpt"):
        task = build_task(made, 300)
        full = {key: torch.randn_like(value) for key, value in task.state_dict().items()}
        shards = {key: distribute_tensor(value, one_process, [Shard(0)]) for key, value in full.items()}
        # The number of steps is not a tensor in shards, and stays in the file.
        state = {0: {"exp_avg": next(iter(shards.values())), "step": torch.tensor(7.0)}}
        content = {
            "hyper_parameters": {"recipe": made.as_dict(), "vocab_size": 300},
            "state_dict": shards,
            "global_step": step,
            "optimizer_states": [{"state": state, "param_groups": [{"params": [0]}]}],
        }
        file = tmp_path / "checkpoints" / name
        strategy.save_checkpoint(content, file)
        return file, full

    return save


def test_a_checkpoint_is_read_as_written(save):
    file, full = save()
    content = read_checkpoint(file)
    assert content["state_dict"].keys() == full.keys()
    assert all(torch.equal(content["state_dict"][key], value) for key, value in full.items())
    (moments,) = content["optimizer_states"][0]["state"].values()
    assert torch.equal(moments["exp_avg"], next(iter(full.values()))) and moments["step"] == 7
    assert checkpoint_shards.SHARDS not in content


def steps_of(folder):
    """The names in a folder, without the random part of those of shards."""
    return sorted(re.sub(r"-\w{8}(?=\.shards$)", "", path.name) for path in folder.iterdir())


def test_shards_stay_as_long_as_a_checkpoint_names_them(save):
    last, _ = save(5)
    best, _ = save(5, "best.ckpt")
    folder = last.parent
    save(6)
    assert steps_of(folder) == ["best-5.shards", "best.ckpt", "last-6.shards", "last.ckpt"]
    # A user continues from the best one; a better one is found before the next save.
    last.write_bytes(best.read_bytes())
    save(9, "best.ckpt")
    assert steps_of(folder) == ["best-5.shards", "best-9.shards", "best.ckpt", "last.ckpt"]
    read_checkpoint(last)
    # The same step once more overwrites nothing.
    (first,) = folder.glob("best-9*.shards")
    save(9, "best.ckpt")
    (second,) = folder.glob("best-9*.shards")
    assert first != second


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_save_that_fails_keeps_the_checkpoint_before(save, monkeypatch, error):
    file, full = save(5)

    def fail(*_args, **_options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed.checkpoint.HuggingFaceStorageWriter, "write_data", fail)
        with pytest.raises(BaseException) as caught:
            save(6)
        assert (getattr(caught.value, "filename", None) is not None) == isinstance(error, OSError)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", fail)  # the shards are there, their checkpoint is not
        with pytest.raises(BaseException, match=None):
            save(6)
    content = read_checkpoint(file)
    assert content["global_step"] == 5
    assert all(torch.equal(content["state_dict"][key], value) for key, value in full.items())
    save(7)
    assert steps_of(file.parent) == ["last-7.shards", "last.ckpt"]


@pytest.mark.parametrize("damage, message", [
    (lambda shard: shard.write_bytes(shard.read_bytes()[:-1] + b"\xff"), "has a wrong checksum"),
    (lambda shard: shard.write_bytes(shard.read_bytes()[:-9]), "has a wrong checksum"),
])  # fmt: skip
def test_damage_is_reported(save, damage, message):
    file, _ = save()
    (shard,) = file.parent.glob("*.shards/*")
    damage(shard)
    with pytest.raises(InputError, match=rf"last\.ckpt: damaged: .*{message}"):
        read_checkpoint(file)


def test_a_shard_that_is_missing_is_named(save):
    file, _ = save()
    (shard,) = file.parent.glob("*.shards/*")
    shard.unlink()
    with pytest.raises(InputError, match=rf"damaged: {shard.parent.name}/{shard.name} next to it is missing"):
        read_checkpoint(file)


@pytest.mark.parametrize("about", [
    {"folder": "../elsewhere", "files": {}}, {"folder": "x.shards", "files": {"../../secret": {}}},
    {"folder": "..", "files": {}}, {"folder": "", "files": {}},
])  # fmt: skip
def test_a_checkpoint_names_no_file_elsewhere(save, about):
    file, _ = save()
    content = torch.load(file, weights_only=True)
    torch.save({**content, checkpoint_shards.SHARDS: about}, file)
    with pytest.raises(InputError, match=r"last\.ckpt: damaged: it names shards in another folder"):
        read_checkpoint(file)
