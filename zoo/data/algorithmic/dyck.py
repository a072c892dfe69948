"""Dyck: how deep is a prefix of well-nested brackets, and what closes it?"""

from __future__ import annotations

from zoo.data.algorithmic import Algorithmic
from zoo.data.draws import Chance
from zoo.field_types import Positive
from zoo.registry import register


@register.dataset("dyck")
class Dyck(Algorithmic):
    """Say how deep a prefix of well-nested brackets is, then close them.

    `( [ ] [ (` is answered by `3 ) ] )`.

    The answer is how many brackets are open, as one token, and then what closes them: the first needs a
    count, the others the kinds too. The size is the length of the prefix. At each position a bracket is
    opened or closed with probability 1/2, where both can be; kinds are uniform. At most `max_depth` are open
    at a time, so that the depths, which are tokens, are the same at every length. Keep it small beside the
    training sizes: depths that short prefixes hardly reach would be rarer in training than beyond it. A
    prefix of even length leaves an even number open, so that a length of evaluation asks for half of them.

    Source: the bounded language Dyck(k,m) of Hewitt et al. 2020 (arXiv:2010.07515) and Yao et al. 2021
    (arXiv:2105.11115), which they learn as a language model; the completion as an answer is that of the
    `dyck_languages` of BIG-bench (arXiv:2206.04615), without the depth. Dyck-2 has two kinds.

    Args:
        num_kinds: kinds of bracket.
        max_depth: most brackets that are open at a time.
    """

    def __init__(self, *, num_kinds: Positive = 2, max_depth: Positive = 8):
        self.num_kinds, self.max_depth = num_kinds, max_depth
        self.symbols = 2 * num_kinds + max_depth + 1

    def lengths(self, size: int) -> tuple[int, int]:
        return size, 1 + min(size, self.max_depth)

    def draw(self, size: int, chance: Chance) -> tuple[list[int], list[int]]:
        kinds, prefix, open_ = self.num_kinds, [], []
        # One number decides both whether to open, where that is possible, and which kind.
        for drawn in chance.numbers(size, 2 * kinds):
            if not open_ or (drawn < kinds and len(open_) < self.max_depth):
                open_.append(drawn % kinds)
                prefix.append(drawn % kinds)
            else:
                prefix.append(kinds + open_.pop())
        depth = 2 * kinds + len(open_)
        return prefix, [depth, *[kinds + kind for kind in reversed(open_)]]
