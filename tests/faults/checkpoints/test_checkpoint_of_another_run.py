"""A run continues only from its own checkpoint, on the data of its training."""

import json

import pytest
from small_run import LONGER, change, refused, resume

from zoo.recipe import resolve
from zoo.reports.evaluate import evaluate
from zoo.reports.fit import fit
from zoo.runs.checkpoint_file import read_checkpoint


@pytest.mark.parametrize("spoil, message", [
    (lambda c: c.pop("zoo_card"), "has no zoo_card"),
    (lambda c: c["hyper_parameters"]["recipe"].update(seed=7), "seed: the run has 7, the recipe now 0"),
])  # fmt: skip
def test_a_state_that_cannot_be_restored_is_refused_and_loses_nothing(run, last, spoil, message):
    change(last, spoil)
    # The recipe has the larger max_steps from then on.
    kept = [file for file in run.rglob("*") if file.is_file() and file.name != "recipe.yaml"]
    before = [file.read_bytes() for file in kept]
    refused(lambda: resume(run), str(last), message)
    assert [file.read_bytes() for file in kept] == before


def test_a_card_that_is_gone_or_older_than_the_checkpoint_is_written_anew(run, unmeasured):
    """After a kill between the checkpoint and the card it has fewer steps."""
    card = run / "card.json"
    older = json.loads(card.read_text()) | {"steps": 0, "tokens_seen": 0, "finished": False}
    card.write_text(json.dumps(older))
    assert json.loads((resume(run) / "card.json").read_text())["steps"] == 4
    card.unlink()
    assert json.loads((resume(run, "trainer.max_steps=6") / "card.json").read_text())["steps"] == 6


@pytest.mark.slow
def test_a_text_or_a_tokenizer_that_has_changed_is_reported(text_run):
    folder, mapping, text = text_run
    longer = resolve(mapping, LONGER)
    original = (text / "3.txt").read_text()
    results = (folder / "evaluation" / "lengths.json").read_bytes()
    tokenizer = read_checkpoint(folder / "checkpoints" / "last.ckpt")["zoo_card"]["fingerprint"]["tokenizer"]
    for changed in (original[:-1] + "z", "q! " * 900):
        (text / "3.txt").write_text(changed)
        for act in (lambda: fit(longer, out=folder, resume=True), lambda: evaluate([folder])):
            reported = refused(
                act, "the text of 'text' has changed (", " then, ", "Restore the text", "data.root="
            )
            assert tokenizer not in reported, "a fingerprint is shown in short"
    assert (folder / "evaluation" / "lengths.json").read_bytes() == results
    (text / "3.txt").write_text(original)
    fit(longer, out=folder, resume=True)
    for file in text.iterdir():
        file.write_text(file.read_text().upper())
    for act in (lambda: fit(longer, out=folder, resume=True), lambda: evaluate([folder])):
        refused(act, "the training text gives another tokenizer (")
