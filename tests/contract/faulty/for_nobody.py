"""It is for neither decoders nor encoders."""

import zoo


@zoo.register("for_nobody")
class ForNobody(zoo.Encoding):
    """It is for neither decoders nor encoders."""

    family = "bias"
    relative = True
    decoder = False
    encoder = False

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
