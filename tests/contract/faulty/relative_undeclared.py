import zoo


@zoo.register("relative_undeclared")
class RelativeUndeclared(zoo.Encoding):
    """Depends on distances alone and does not declare that it is relative."""

    family = "bias"

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
