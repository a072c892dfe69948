from torch.nn import functional as F

import zoo


@zoo.register("values_shifted_over_padding")
class ValuesShiftedOverPadding(zoo.Encoding):
    """`values` adds the value of the row before, which may be padding or the end of another document."""

    family = "content"
    relative = True
    reads_positions = False

    def values(self, v, context):
        return v + F.pad(v, (0, 0, 1, -1))
