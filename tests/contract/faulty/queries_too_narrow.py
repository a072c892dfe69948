import zoo


@zoo.register("queries_too_narrow")
class QueriesTooNarrow(zoo.Encoding):
    """`rotate` returns queries of half the width."""

    family = "rotary"
    relative = True

    def rotate(self, q, k, context):
        return q[..., : q.shape[-1] // 2], k
