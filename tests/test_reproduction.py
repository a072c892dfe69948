"""The first five encodings of the leaderboard on text, trained again, have their stored losses.

`pytest -m nightly` takes 90 minutes on a core; ZOO_DATA names the folder of the corpora.
"""

import pytest
import yaml

import results
from zoo import cli

FILE = results.STUDIES / "08_text.yaml"
LENGTHS = [256, 1024]
FAR = 0.01
"""In bits per byte. Processors round differently, which training amplifies; seeds differ by up to 0.011."""


def losses(store):
    """Bits per byte of each encoding of seed 0 at each length, with the plain checkpoint."""
    (study,) = (one for one in results.read_studies(FILE.parent) if one.name == "text")
    found = {}
    for entry in study.entries(store):
        for one in entry.run.measurements if entry.seed == 0 and entry.run else ():
            if one.protocol == "nonoverlapping" and not (one.parameters or one.changed):
                rows = {row.length: getattr(row, "bits_per_byte", None) for row in one.rows}
                found[entry.encoding] = [rows.get(length) for length in LENGTHS]
    return found


@pytest.mark.nightly
def test_the_leaderboard_s_first_five_trained_again_have_their_stored_losses(here):
    known = losses(results.OUT)
    first = sorted(known, key=lambda name: known[name][0])[:5]
    # No other corpus.
    study = {"extends": str(FILE), "lengths": LENGTHS, "protocols": ["nonoverlapping"], "readings": []}
    (here / FILE.name).write_text(yaml.safe_dump(study))
    assert cli.main(["sweep", FILE.name, "--only", ",".join(first), "--limit", "5", "--store", "store"]) == 0
    again = losses(here / "store")
    assert again.keys() == set(first)
    for name in first:
        assert again[name] == pytest.approx(known[name], abs=FAR), name
