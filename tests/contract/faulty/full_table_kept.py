import torch

import zoo
from zoo.encodings.context import per_query_and_key


@zoo.register("full_table_kept")
class FullTableKept(zoo.Encoding):
    """Keeps a table of all pairs, whatever the block of queries."""

    family = "bias"
    relative = True
    distance_only = True

    def bias(self, head, q, k):
        return -(q - k).abs() / (head + 1.0)

    def bias_table(self, context, num_heads):
        if "all pairs" not in context.shared:
            head = torch.arange(num_heads, device=context.k_pos.device)[:, None, None]
            context.shared["all pairs"] = self.bias(head, *per_query_and_key(context.k_pos, context.k_pos))
        return super().bias_table(context, num_heads)
