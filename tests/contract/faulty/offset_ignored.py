import torch

import zoo


@zoo.register("offset_ignored")
class OffsetIgnored(zoo.Encoding):
    """Counts queries from row 0, with a cache too."""

    family = "content"
    relative = True

    def score(self, q, k, context):
        distance = torch.arange(context.num_queries, device=q.device)[:, None] - torch.arange(
            context.num_keys, device=q.device
        )
        return -0.3 * distance.abs().float()
