"""Attention weights whose rows sum to more than one."""

import zoo


@zoo.register("rows_above_one")
class RowsAboveOne(zoo.Encoding):
    """Attends more than fully."""

    family = "weights"
    reads_positions = False
    relative = True

    def weights(self, logits, context):
        return 1.5 * super().weights(logits, context)
