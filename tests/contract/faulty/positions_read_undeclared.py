import zoo


@zoo.register("positions_read_undeclared")
class PositionsReadUndeclared(zoo.Encoding):
    """Declares that it reads no positions, and does."""

    family = "bias"
    relative = True
    reads_positions = False

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
