"""It takes the queries for the last rows, which in a block of an encoder they are not."""

import torch

import zoo


@zoo.register("assumes_the_last")
class AssumesTheLast(zoo.Encoding):
    """It takes the queries for the last rows, which in a block of an encoder they are not."""

    family = "content"
    relative = True

    def score(self, q, k, span):
        rows = torch.arange(span.num_keys, device=q.device)
        distance = rows[span.num_keys - span.num_queries :, None] - rows
        return -0.3 * distance.abs().float()
