"""The windows of each protocol of text by plain loops, and the losses of the known models in them."""

import numpy as np
import torch

LENGTHS = [8, 12, 16, 50]
TEXT_PROTOCOLS = ["nonoverlapping", "sliding", "fixed_targets", "per_position"]


def whole_stream(source):
    return torch.from_numpy(source.stream("valid")[:].astype(np.int64))


def documents_of(source):
    """(first, last) token of every document, by its end tokens."""
    ends = torch.nonzero(whole_stream(source) == source.tokenizer.end_token).flatten().tolist()
    return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))


def contexts(protocol, source, settings, length, lengths, start=0):
    """{target: tokens of context in its window}, by a loop over windows; settings are a recipe's.

    With `start=1` a window of `length` tokens begins with a start token and has one token less of the text.
    """
    scored = {}

    def window(start_at, stop, targets):
        for target in targets:
            assert target not in scored
            scored[target] = target - start_at + start
            assert start_at < target <= stop

    size = min(len(whole_stream(source)) - 1, settings.max_tokens)
    room = (max(lengths) if protocol == "per_position" else length) - start
    if protocol in ("nonoverlapping", "per_position"):
        for first in range(0, size, room):
            stop = min(first + room, size)
            window(first, stop, range(first + 1, stop + 1))
    elif protocol == "sliding":
        stride = settings.stride if isinstance(settings.stride, int) else int(settings.stride * room)
        window(0, room, range(1, room + 1))
        stop = room
        while stop < size:
            stop = min(stop + stride, size)
            window(stop - room, stop, [t for t in range(stop - room + 1, stop + 1) if t not in scored])
    else:
        for first, last in documents_of(source):
            if first < size and last - first >= max(lengths):
                number = min(settings.targets, min(lengths) - start)
                window(last - room, last, range(last - number + 1, last + 1))
                assert first <= last - room
    return scored


def total_loss(model, stream, scored):
    """By the model's own log p(token, x), x being the token before or the tokens of context; one by one."""
    losses = {}
    for target, context in scored.items():
        token = stream[target - 1]
        if type(model).__name__ == "Bigram":
            log_p = model.table[token]
        elif type(model).__name__ == "Trigram":
            log_p = model.log_p(token, stream[target - 2] if context > 1 else torch.tensor(-1))
        else:
            log_p = model.log_p(token, torch.tensor(context))
        losses[target] = -log_p[stream[target]].item()
    return losses


def recorded(task, source):
    """Every window that the model reads from now on."""
    seen = []

    class Recorder(type(task.model)):
        def hidden(self, tokens):
            seen.extend(tokens)
            return super().hidden(tokens)

    task.model = Recorder(source.vocab_size)
    return seen
