"""Every encoding of the zoo leaves it: the exported model gives the run's logits."""

import pytest

from zoo import registry
from zoo.encodings.base import Size
from zoo.encodings.parameters import representative
from zoo.pretrained.export import export

SIZE = Size(16, 2, 2, 16, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n for n in registry.encodings.names() if registry.encodings.describe(n).decoder]
)
def test_every_encoding_is_exported(name, checkpoint, tmp_path):
    place, _ = checkpoint(f"model.encoding={representative(name, SIZE)}")
    exported = export(place, tmp_path / "out", "hf")
    assert exported.difference < 1e-4
