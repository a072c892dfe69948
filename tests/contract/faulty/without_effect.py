"""Every score gets the same, which no softmax notices."""

import zoo


@zoo.register("without_effect")
class WithoutEffect(zoo.Encoding):
    """Every score gets the same, which no softmax notices."""

    family = "bias"
    relative = True

    def bias(self, head, q, k):
        return 3.0 + 0.0 * (head + q - k)
