import zoo


@zoo.register("values_not_turned_back")
class ValuesNotTurnedBack(zoo.Encoding):
    """Values vary with their position and the output does not turn back, so that it is not relative."""

    family = "rotary"
    relative = True

    def values(self, v, context):
        wave = context.k_pos.float().sin()[..., None].to(v.dtype)
        return v * (1 + (wave if wave.dim() == 2 else wave[:, None]))
