import zoo


@zoo.register("no_docstring")
class NoDocstring(zoo.Encoding):
    relative = True

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
