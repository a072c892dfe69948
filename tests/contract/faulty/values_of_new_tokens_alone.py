import zoo


@zoo.register("values_of_new_tokens_alone")
class ValuesOfNewTokensAlone(zoo.Encoding):
    """`values` adds the value of the token before, and forgets the last one in the cache."""

    family = "content"
    relative = True
    reads_positions = False
    encoder = False

    def values(self, v, context):
        first = context.query_offset
        before = context.previous(v)
        before[:, :, first : first + 1] = 0
        return v + before
