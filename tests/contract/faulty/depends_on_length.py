import zoo


@zoo.register("depends_on_length")
class DependsOnLength(zoo.Encoding):
    """Depends on the length of the sequence and does not declare it."""

    family = "content"
    relative = True

    def score(self, q, k, context):
        distance = context.q_pos[..., :, None] - context.k_pos[..., None, :]
        share = distance.abs().float() / (1 + context.k_pos.amax(-1)[..., None, None])
        return -10 * (share if share.dim() == 2 else share[:, None])
