"""It takes the mean over all tokens, padding among them."""

import zoo


@zoo.register("sees_padding")
class SeesPadding(zoo.Encoding):
    """It takes the mean over all tokens, padding among them."""

    family = "absolute"
    relative = True
    decoder = False

    def embed(self, x, pos):
        return x - x.mean(1, keepdim=True)
