"""Every dataset that needs no download passes the laws of datasets."""

import pytest

from zoo import registry
from zoo.contract import dataset_laws
from zoo.contract.dataset_laws import LAWS, DatasetSubject

SAMPLE = {"documents": 12, "words": 300, "vocab_size": 400}
TWO = [{"name": "sample", "documents": 60, "words": 80, "corpus_seed": seed} for seed in (0, 1)]
TEXT = {"sample": SAMPLE, "mix": {"of": TWO, "weights": [2, 1], "vocab_size": 300}}
TEXT |= {
    name: {"corpus": "sample", "sequence_length": 320, **SAMPLE}
    for name in ("passkey", "needle", "variable_tracking", "common_words", "frequent_words")
}
GENERATED = [name for name, about in registry.datasets.all().items() if about.source == "generated"]


@pytest.mark.parametrize("name", sorted({*TEXT, *GENERATED}))
def test_the_laws_of_datasets_hold(name, tmp_path, monkeypatch):
    if name in TEXT:  # of so many different rows a few tell as much
        monkeypatch.setattr(dataset_laws, "SOME", 32)
    subject = DatasetSubject(registry.datasets.describe(name), TEXT.get(name, {}), tmp_path)
    for law in LAWS:
        if law.does_not_apply(subject) is None:
            findings = list(law.trial(subject))
            assert findings and all(one.passed for one in findings), (law.name, findings)
