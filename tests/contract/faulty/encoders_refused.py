import zoo


@zoo.register("encoders_refused")
class EncodersRefused(zoo.Encoding):
    """Declares that it is for encoders, and its constructor refuses them."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        if not size.causal:
            raise ValueError("for decoders only")
