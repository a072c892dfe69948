"""The constructor fails."""

import zoo


@zoo.register("cannot_begin")
class CannotBegin(zoo.Encoding):
    """The constructor fails."""

    family = "bias"

    def __init__(self, size, *, slope: float = 1.0):
        super().__init__(size)
        raise RuntimeError("no table of slopes\nwas found")
