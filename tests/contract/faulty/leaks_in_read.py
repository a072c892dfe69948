"""What it reads of a token has the mean of all in it."""

from torch import nn

import zoo


@zoo.register("leaks_in_read")
class LeaksInRead(zoo.Encoding):
    """What it reads of a token has the mean of all in it."""

    family = "content"
    relative = True

    def __init__(self, size):
        super().__init__(size)
        self.gate = nn.Linear(size.d_model, size.num_heads)

    def read(self, x):
        return self.gate(x * x.mean(1, keepdim=True))

    def score(self, q, k, span):
        return span.read.transpose(1, 2)[:, :, None, :]
