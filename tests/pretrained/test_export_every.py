"""An encoding of each family of hooks leaves the zoo: the exported model gives the run's logits."""

import pytest

from zoo.encodings.base import Size
from zoo.encodings.parameters import representative
from zoo.pretrained.export import export

SIZE = Size(16, 2, 2, 16, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "shape",  # embed, in a wrapper
        "randomized",  # positions
        "cable",  # read, key_score
        "path",  # read, rotate, score
        "fire",  # bias_table
        "dape",  # bias, in a wrapper
        "cope",  # logits
        "shaw",  # score, value
    ],
)
def test_an_encoding_of_each_hook_is_exported(name, checkpoint, tmp_path):
    place, _ = checkpoint(f"model.encoding={representative(name, SIZE)}")
    exported = export(place, tmp_path / "out", "hf")
    assert exported.difference < 1e-4


@pytest.mark.slow
def test_gates_and_shifts_are_exported(checkpoint, tmp_path):
    """No architecture of transformers takes these keys, so the zoo's own code goes along."""
    keys = "model.encoding=fox", "model.kv_shift=true", "model.head_norm=true", "model.output_gate=headwise"
    exported = export(checkpoint(*keys)[0], tmp_path / "out", "hf")
    assert exported.difference < 1e-4
