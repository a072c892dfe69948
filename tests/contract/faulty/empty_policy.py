"""It says that an option decides what is beyond the trained length, and has none."""

import zoo


@zoo.register("empty_policy")
class EmptyPolicy(zoo.Encoding):
    """It says that an option decides what is beyond the trained length, and has none."""

    family = "bias"
    relative = True
    extrapolates = "policy"

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
