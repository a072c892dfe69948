"""Broken checkpoints: each is refused, or has the same values; none hangs, crashes or fills the memory."""

import math
import resource
import shutil
from collections import Counter

import checkpoint_mutations
import pytest
import torch
from fuzzing import FACTOR, SEED
from limits import at_most

from zoo.errors import InputError, RunError
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.runs.load import load_task
from zoo.training.fit import fit

LOADED, RESUMED = 300 * FACTOR, 30 * FACTOR
PATIENCE = 60
"""Seconds for each, which takes some milliseconds."""
MOST_MEMORY = 1 << 30
"""Bytes, beyond what the process held before."""

pytestmark = pytest.mark.slow


def same(one, two):
    """Whether two contents are bitwise the same, in values and in types."""
    if type(one) is not type(two):
        return False
    if isinstance(one, torch.Tensor):
        return (
            one.dtype == two.dtype
            and one.shape == two.shape
            and one.numpy().tobytes() == two.numpy().tobytes()
        )
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two or (isinstance(one, float) and math.isnan(one) and math.isnan(two))


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.fixture
def run(here, recipe):
    """A run of a model with weights of several shapes, at step 4 of 6."""
    made = recipe("max_index", "model.encoding=kerple", "evaluate.lengths=[8]", "trainer.max_steps=4",
                  "optimizer.schedule=constant")  # fmt: skip
    return fit(made, out=here / "run")


def assert_well_reported(error, path):
    """One message that names the file: no traceback, no endless line."""
    text = str(error)
    assert str(path) in text, text
    assert "Traceback" not in text and len(text) < 20_000 and len(text.splitlines()) < 60, text[:2000]


def test_a_broken_checkpoint_is_refused_or_unchanged(run, tmp_path):
    raw = (run / "checkpoints" / "last.ckpt").read_bytes()
    whole = read_checkpoint(run / "checkpoints" / "last.ckpt")
    path = tmp_path / "broken.ckpt"
    tokens = torch.ones(1, 8, dtype=torch.long)
    outcomes, failures, before = Counter(), [], peak_bytes()
    for number in range(LOADED):
        broken, kind, change = checkpoint_mutations.mutated(raw, f"{SEED} {number}")
        path.write_bytes(broken)
        where = f"seed {SEED} {number}: {kind}, {change}"
        try:
            with at_most(PATIENCE):
                task = load_task(path)
                logits = task.model(tokens)
        except InputError as error:
            assert_well_reported(error, path)
            outcomes[kind, "reported"] += 1
            continue
        except BaseException as error:
            failures.append(f"{where}: {type(error).__name__}: {error}")
            continue
        if logits.shape != (1, 8) or not logits.isfinite().all():
            failures.append(f"{where}: computes {logits}")
        if kind == "bytes" and not same(read_checkpoint(path), whole):
            failures.append(f"{where}: loaded, and is another")
        outcomes[kind, "loaded"] += 1
    grown = (peak_bytes() - before) / 2**20
    print(f"seed {SEED}: {dict(sorted(outcomes.items()))}; peak memory grew by {grown:.0f} MiB")
    assert not failures, "\n".join(failures[:30])
    assert grown * 2**20 < MOST_MEMORY
    assert outcomes["bytes", "reported"] > 50 * FACTOR and outcomes["content", "loaded"], "no mutations"


def test_a_broken_checkpoint_is_refused_or_continued(run, recipe, tmp_path, unmeasured):
    longer = recipe("max_index", "model.encoding=kerple", "evaluate.lengths=[8]", "trainer.max_steps=6",
                    "optimizer.schedule=constant")  # fmt: skip
    raw = (run / "checkpoints" / "last.ckpt").read_bytes()
    folder = tmp_path / "copy"

    def resumed(content):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run, folder)
        (folder / "checkpoints" / "last.ckpt").write_bytes(content)
        torch.manual_seed(0)
        with at_most(PATIENCE):
            fit(longer, out=folder, resume=True)
        return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)

    whole, outcomes, failures = resumed(raw), Counter(), []
    assert whole["global_step"] == 6
    for number in range(RESUMED):
        broken, kind, change = checkpoint_mutations.mutated(raw, f"resume {SEED} {number}", (1, 0, 0))
        where = f"seed resume {SEED} {number}: {kind}, {change}"
        try:
            end = resumed(broken)
        except (InputError, RunError) as error:
            assert_well_reported(error, folder)
            outcomes[kind, "reported"] += 1
            continue
        except BaseException as error:
            failures.append(f"{where}: {type(error).__name__}: {error}")
            continue
        if end["global_step"] != 6:
            failures.append(f"{where}: ended at step {end['global_step']}")
        if kind == "bytes" and not same(end["state_dict"], whole["state_dict"]):
            failures.append(f"{where}: went on as another")
        outcomes[kind, "went on"] += 1
    print(f"seed {SEED}: {dict(sorted(outcomes.items()))}")
    assert not failures, "\n".join(failures[:30])
    assert outcomes["bytes", "reported"]
