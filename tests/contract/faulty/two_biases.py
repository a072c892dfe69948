"""Point by point the bias is another than as a table."""

import zoo


@zoo.register("two_biases")
class TwoBiases(zoo.Encoding):
    """Point by point the bias is another than as a table."""

    family = "bias"
    relative = True

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)

    def bias_table(self, span, num_heads):
        return 0.99 * super().bias_table(span, num_heads)
