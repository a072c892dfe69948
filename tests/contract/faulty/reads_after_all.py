"""It says that it reads no positions, and does."""

import zoo


@zoo.register("reads_after_all")
class ReadsAfterAll(zoo.Encoding):
    """It says that it reads no positions, and does."""

    family = "bias"
    relative = True
    reads_positions = False

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
