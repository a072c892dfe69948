import zoo


@zoo.register("no_kind_of_model")
class NoKindOfModel(zoo.Encoding):
    """Declares that it is for neither decoders nor encoders."""

    family = "bias"
    relative = True
    decoder = False
    encoder = False

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
