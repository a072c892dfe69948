"""Files of a run that are gone or damaged: the message has a remedy, and no other file is overwritten."""

import json

import pytest
import torch

from zoo.errors import InputError
from zoo.reports.fit import fit
from zoo.training.run import find_start

pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.fixture
def run(run_copy):
    return run_copy


def reported(act):
    with pytest.raises(InputError) as caught:
        act()
    return str(caught.value)


def card_of(run, **changes):
    card = json.loads((run / "card.json").read_text())
    (run / "card.json").write_text(json.dumps(card | changes))


def test_the_best_checkpoint_of_a_run_that_lost_the_last_one_is_not_written_over(run, recipe):
    (run / "checkpoints/last.ckpt").unlink()
    best, before = run / "checkpoints/best.ckpt", (run / "checkpoints/best.ckpt").read_bytes()
    for resume in (True, "auto"):
        text = reported(lambda resume=resume: fit(recipe(), resume=resume))
        assert "last.ckpt: missing. best.ckpt next to it may be intact: " in text
    # A card of no steps: killed between the first best.ckpt and the first last.ckpt.
    card_of(run, steps=0)
    assert find_start(recipe(), resume=True).checkpoint is None
    assert best.read_bytes() == before
    # The remedy works.
    card_of(run, steps=6)
    best.replace(run / "checkpoints/last.ckpt")
    assert fit(recipe(), resume=True) == run
    assert torch.load(run / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 6


def test_an_empty_folder_is_not_a_run(here, recipe):
    (here / "mine").mkdir()
    assert find_start(recipe(), here / "mine", "auto").folder is None
