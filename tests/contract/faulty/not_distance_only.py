import zoo


@zoo.register("not_distance_only")
class NotDistanceOnly(zoo.Encoding):
    """Declares `distance_only` and depends on the position of the key."""

    family = "bias"
    distance_only = True

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1) / (1 + k)
