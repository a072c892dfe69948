import zoo


@zoo.register("table_differs")
class TableDiffers(zoo.Encoding):
    """The table differs from the pointwise bias."""

    family = "bias"
    relative = True

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)

    def bias_table(self, context, num_heads):
        return 0.99 * super().bias_table(context, num_heads)
