"""It knows distances alone, and does not say so."""

import zoo


@zoo.register("too_modest")
class TooModest(zoo.Encoding):
    """It knows distances alone, and does not say so."""

    family = "bias"

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
