"""Every token moves when one more comes, and it does not say so."""

import zoo


@zoo.register("stretches")
class Stretches(zoo.Encoding):
    """Every token moves when one more comes, and it does not say so."""

    family = "content"
    relative = True

    def score(self, q, k, span):
        distance = span.q_pos[..., :, None] - span.k_pos[..., None, :]
        share = distance.abs().float() / (1 + span.k_pos.amax(-1)[..., None, None])
        return -10 * (share if share.dim() == 2 else share[:, None])
