import zoo


@zoo.register("wrong_key_score")
class WrongKeyScore(zoo.Encoding):
    """`key_score` has another sign than `score`."""

    family = "content"
    relative = True

    def score(self, q, k, context):
        return self._of_keys(k)

    def key_score(self, k, context):
        return -self._of_keys(k)

    def _of_keys(self, k):
        return k.float().mean(-1)[..., None, :]
