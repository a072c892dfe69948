"""`rotate` gives queries of half the width."""

import zoo


@zoo.register("too_narrow")
class TooNarrow(zoo.Encoding):
    """`rotate` gives queries of half the width."""

    family = "rotary"
    relative = True

    def rotate(self, q, k, span):
        return q[..., : q.shape[-1] // 2], k
