import zoo


@zoo.register("score_sees_later_keys")
class ScoreSeesLaterKeys(zoo.Encoding):
    """`score` uses the next key."""

    family = "content"
    relative = True

    def score(self, q, k, context):
        return q @ k.roll(-1, 2).transpose(-1, -2) * 0.1
