import torch

import zoo


@zoo.register("documents_forgotten")
class DocumentsForgotten(zoo.Encoding):
    """Counts the tokens of the window before a query, not those of its document."""

    family = "content"
    encoder = False
    relative = True
    reads_positions = False

    def rotate(self, q, k, context):
        rows = slice(context.query_offset, context.query_offset + context.num_queries)
        if context.keep is None:
            count = torch.arange(context.num_keys, device=q.device)[rows, None] + 1
        else:
            count = context.keep.cumsum(-1)[:, None, rows, None]
        return q * (1 + 0.1 * count.float().log1p()).to(q.dtype), k
