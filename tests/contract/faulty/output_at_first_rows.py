import torch

import zoo


@zoo.register("output_at_first_rows")
class OutputAtFirstRows(zoo.Encoding):
    """Takes the first keys' features for those of the queries."""

    family = "content"
    relative = True
    reads_positions = False
    per_layer = True

    def __init__(self, size):
        super().__init__(size)
        self.gate = torch.nn.Linear(size.d_model, size.num_heads)

    def read(self, x):
        return self.gate(x).sigmoid()

    def output(self, out, context):
        gates = context.features[:, : out.shape[2]]
        return out * gates.transpose(1, 2)[..., None].to(out.dtype)
