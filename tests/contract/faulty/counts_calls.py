"""Its bias depends on how often it was asked for."""

import zoo


@zoo.register("counts_calls")
class CountsCalls(zoo.Encoding):
    """Its bias depends on how often it was asked for."""

    family = "bias"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.calls = 0

    def bias(self, head, q, k):
        self.calls += 1
        return -(q - k).abs().float() * (head + 1) / self.calls
