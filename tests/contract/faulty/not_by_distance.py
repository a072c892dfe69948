"""It says that only distance counts, and position does."""

import zoo


@zoo.register("not_by_distance")
class NotByDistance(zoo.Encoding):
    """It says that only distance counts, and position does."""

    family = "bias"
    distance_only = True

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1) / (1 + k)
