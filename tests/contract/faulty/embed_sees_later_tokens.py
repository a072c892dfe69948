import zoo


@zoo.register("embed_sees_later_tokens")
class EmbedSeesLaterTokens(zoo.Encoding):
    """`embed` adds the next token to each."""

    family = "absolute"
    relative = True

    def embed(self, x, pos):
        return x + x.roll(-1, 1)
