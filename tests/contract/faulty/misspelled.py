"""`bias` with an s too many, which no model calls."""

import zoo


@zoo.register("misspelled")
class Misspelled(zoo.Encoding):
    """Scores fall with distance, or would."""

    family = "bias"
    relative = True

    def biass(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
