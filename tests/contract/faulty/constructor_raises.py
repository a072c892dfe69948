import zoo


@zoo.register("constructor_raises")
class ConstructorRaises(zoo.Encoding):
    """The constructor raises."""

    family = "bias"

    def __init__(self, size, *, slope: float = 1.0):
        super().__init__(size)
        raise RuntimeError("no table of slopes\nwas found")
