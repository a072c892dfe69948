"""A run goes on only from a checkpoint of its own, on the data that it was trained on."""

import json
import sys

import pytest
from small_run import LONGER, change, refused, resume

from zoo.recipe import resolve
from zoo.reports.evaluate import evaluate
from zoo.runs.checkpoint_file import read_checkpoint
from zoo.training.fit import fit


@pytest.mark.parametrize("spoil, message", [
    (lambda c: c["optimizer_states"].clear(), "optimizer_states is not a list of 1"),
    (lambda c: c["optimizer_states"][0]["state"][0]["exp_avg"].fill_(float("nan")), "0.exp_avg holds NaN"),
    (lambda c: c["optimizer_states"][0]["param_groups"][0].update(betas=(0.5, 0.5)), "betas"),
    (lambda c: c.pop("lr_schedulers"), "lr_schedulers is not a list of 1"),
    (lambda c: c["loops"].pop("fit_loop"), "loops.fit_loop is missing"),
    (lambda c: c["loops"]["fit_loop"]["epoch_progress"]["current"].update(ready=-1), "current.ready"),
    (lambda c: c["loops"]["fit_loop"]["state_dict"].clear(), "loops.fit_loop.state_dict.combined_loader"),
    (lambda c: c.update(global_step=1), "counts other steps than the 1 of global_step"),
    (lambda c: c.update(callbacks=[1]), "callbacks: "),
    (lambda c: c.pop("zoo_card"), "holds no zoo_card"),
    (lambda c: c["zoo_card"].update(changed_on_resume=[{"step": 1}]), "zoo_card.changed_on_resume.0.key"),
    (lambda c: c["hyper_parameters"]["recipe"].update(seed=7), "seed: 7 in this checkpoint, and 0 in recipe"),
    (lambda c: c.update({"pytorch-lightning_version": "one"}), "no pytorch-lightning_version"),
])  # fmt: skip
def test_what_cannot_be_restored_is_reported_before_it_is_tried(run, last, spoil, message):
    change(last, spoil)
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    refused(lambda: resume(run), str(last), message)
    # Nothing is lost by the attempt.
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_what_lightning_stumbles_over_is_reported_with_its_version(run, last, monkeypatch):
    from zoo.training import resume_checks, trainer

    def spoil(content):
        content["optimizer_states"] = "none"
        content["pytorch-lightning_version"] = "3.1.0"

    change(last, spoil)
    refused(lambda: resume(run), "written by Lightning 3.1.0, here is ")
    # What the checks before it do not know.
    monkeypatch.setattr(trainer, "validate_restorable", lambda *given: None)
    refused(lambda: resume(run), str(last), "cannot be continued: ")
    assert resume_checks.RESTORES in sys.modules


@pytest.mark.slow
def test_a_newer_lightning_is_taken_where_its_checkpoint_fits(run, last):
    change(last, lambda content: content.update({"pytorch-lightning_version": "3.1.0"}))
    assert read_checkpoint(resume(run) / "checkpoints" / "last.ckpt")["global_step"] == 4


@pytest.mark.parametrize("spoil, message", [
    (lambda card: "{", "cannot be read"),
    (lambda card: "[]", "not the card of a run"),
    (lambda card: json.dumps(card | {"seed": 3}), "not the card of this run: seed differ"),
    (lambda card: json.dumps(card | {"fingerprint": {"corpus": "x"}}), "fingerprint.corpus, fingerprint.tok"),
])  # fmt: skip
def test_a_card_of_another_run_is_reported(run, spoil, message):
    card = run / "card.json"
    card.write_text(spoil(json.loads(card.read_text())))
    refused(lambda: resume(run), str(card), message, "remove card.json: it is written anew")


@pytest.mark.slow
def test_a_card_that_is_gone_is_written_anew(run):
    (run / "card.json").unlink()
    assert json.loads((resume(run) / "card.json").read_text())["steps"] == 4


@pytest.mark.slow
def test_a_card_that_lags_behind_is_none_of_another_run(run):
    # As after a kill between the checkpoint and the card.
    card = run / "card.json"
    card.write_text(
        json.dumps(json.loads(card.read_text()) | {"steps": 0, "tokens_seen": 0, "finished": False})
    )
    assert json.loads((resume(run) / "card.json").read_text())["steps"] == 4


@pytest.mark.slow
def test_a_text_that_has_changed_is_reported(text_run):
    folder, mapping, text = text_run
    longer = resolve(mapping, LONGER)
    original = (text / "3.txt").read_text()
    results = (folder / "evaluation" / "lengths.json").read_bytes()
    tokenizer = read_checkpoint(folder / "checkpoints" / "last.ckpt")["zoo_card"]["fingerprint"]["tokenizer"]
    for changed in (original[:-1] + "z", "q! " * 900):
        (text / "3.txt").write_text(changed)
        for act in (lambda: fit(longer, out=folder, resume=True), lambda: evaluate([folder])):
            reported = refused(
                act, "the text of 'text' has changed (", " then, ", "Put the old text back", "data.root="
            )
            assert tokenizer not in reported, "a fingerprint is shown in short"
    assert (folder / "evaluation" / "lengths.json").read_bytes() == results
    (text / "3.txt").write_text(original)
    fit(longer, out=folder, resume=True)


@pytest.mark.slow
def test_a_tokenizer_that_has_changed_is_reported(text_run):
    folder, mapping, text = text_run
    for file in text.iterdir():
        file.write_text(file.read_text().upper())
    for act in (lambda: fit(resolve(mapping, LONGER), out=folder, resume=True), lambda: evaluate([folder])):
        refused(act, "the training text gives another tokenizer (")
