import zoo


@zoo.register("padding_in_mean")
class PaddingInMean(zoo.Encoding):
    """Subtracts the mean of all tokens, with padding."""

    family = "absolute"
    relative = True
    decoder = False

    def embed(self, x, pos):
        return x - x.mean(1, keepdim=True)
