"""Its facts change after the file was read."""

import zoo


@zoo.register("second_thoughts")
class SecondThoughts(zoo.Encoding):
    """Its facts change after the file was read."""

    family = "bias"

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)


SecondThoughts.relative = True
