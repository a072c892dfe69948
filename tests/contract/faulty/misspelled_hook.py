import zoo


@zoo.register("misspelled_hook")
class MisspelledHook(zoo.Encoding):
    """Scores fall with distance, or would: the hook `bias` is misspelled."""

    family = "bias"
    relative = True

    def biass(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
