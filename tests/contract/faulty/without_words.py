import zoo


@zoo.register("without_words")
class WithoutWords(zoo.Encoding):
    relative = True

    def bias(self, head, q, k):
        return -(q - k).abs().float() * (head + 1)
