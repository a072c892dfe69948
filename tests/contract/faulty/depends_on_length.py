"""Depends on the length of the sequence and does not declare it."""

import zoo


@zoo.register("depends_on_length")
class DependsOnLength(zoo.Encoding):
    """Depends on the length of the sequence and does not declare it."""

    family = "content"
    relative = True

    def score(self, q, k, span):
        distance = span.q_pos[..., :, None] - span.k_pos[..., None, :]
        share = distance.abs().float() / (1 + span.k_pos.amax(-1)[..., None, None])
        return -10 * (share if share.dim() == 2 else share[:, None])
