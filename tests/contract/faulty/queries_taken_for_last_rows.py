import torch

import zoo


@zoo.register("queries_taken_for_last_rows")
class QueriesTakenForLastRows(zoo.Encoding):
    """Takes the queries for the last rows; in a block of an encoder they are not."""

    family = "content"
    relative = True

    def score(self, q, k, context):
        rows = torch.arange(context.num_keys, device=q.device)
        distance = rows[context.num_keys - context.num_queries :, None] - rows
        return -0.3 * distance.abs().float()
