"""Its score knows the key that follows."""

import zoo


@zoo.register("leaks_in_score")
class LeaksInScore(zoo.Encoding):
    """Its score knows the key that follows."""

    family = "content"
    relative = True

    def score(self, q, k, span):
        return q @ k.roll(-1, 2).transpose(-1, -2) * 0.1
