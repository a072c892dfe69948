import zoo


@zoo.register("policy_without_option")
class PolicyWithoutOption(zoo.Encoding):
    """Declares that an option decides what happens beyond the trained length, and has none."""

    family = "bias"
    relative = True
    extrapolates = "policy"

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
