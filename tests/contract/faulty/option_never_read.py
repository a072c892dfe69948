"""Keeps an option that nothing reads."""

import zoo


@zoo.register("option_never_read")
class OptionNeverRead(zoo.Encoding):
    """Keeps an option that nothing reads.

    Options:
        slope: of the heads.
        power: of the distance.
    """

    family = "bias"
    relative = True

    def __init__(self, size, *, slope: float = 0.3, power: float = 1.0):
        super().__init__(size)
        self.slope, self._power = slope, power

    def bias(self, head, q, k):
        return -self.slope * (head + 1.0) * (q - k).abs()
