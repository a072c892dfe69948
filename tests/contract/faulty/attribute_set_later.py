"""Sets an attribute after the class is registered."""

import zoo


@zoo.register("attribute_set_later")
class AttributeSetLater(zoo.Encoding):
    """Sets an attribute after the class is registered."""

    family = "bias"

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)


AttributeSetLater.relative = True
