import zoo


@zoo.register("distances_in_bf16")
class DistancesInBF16(zoo.Encoding):
    """Computes distances in bf16, which is exact to 256."""

    family = "content"
    relative = True

    def score(self, q, k, context):
        q_pos, k_pos = context.q_pos.to(q.dtype), context.k_pos.to(q.dtype)
        distance = (q_pos[..., :, None] - k_pos[..., None, :]).abs()
        return -(distance if distance.dim() == 2 else distance[:, None])
