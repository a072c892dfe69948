"""Models whose losses are known, and a text of long documents and one of many short ones."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_recipes import tiny
from torch import nn

from zoo import registry
from zoo.data import open_data
from zoo.evaluation.protocols.protocol import Execution, build_protocol
from zoo.launch.team import alone

WORDS = ["a", "the", "The", "owl", "ate", "an", "Übermut", "of", "plum,", "and", "12", "more;", "nothing."]


@pytest.fixture(scope="session")
def text_recipe(tmp_path_factory):
    """A resolved recipe: `text_recipe("decoder", "many", "evaluate.targets=3")`."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(WORDS, 300)) + "\n\nThe end\tof it.\n" for _ in range(12)]
    (folder / "few").mkdir()
    for number, document in enumerate(documents):
        (folder / "few" / f"{number:02}.txt").write_text(document)
    (folder / "many.txt").write_text(
        "\n<|endoftext|>\n".join(" ".join(rng.choice(WORDS, rng.integers(2, 18))) for _ in range(240))
    )
    roots = {"few": folder / "few", "many": folder / "many.txt"}

    def text_recipe(kind="decoder", corpus="few", *sets):
        text = {"name": "text", "root": str(roots[corpus]), "cache": str(folder / "cache")}
        evaluate = {"max_tokens": 200, "batch_tokens": 64, "lengths": [8, 12, 16, 50]}
        data = {**text, "sequence_length": 16, "vocab_size": 270}
        return tiny(data, *sets, kind=kind, evaluate=evaluate)

    return text_recipe


class Bigram(nn.Module):
    """log p(next | this token), from a table; no position is looked at, nor anything farther away."""

    def __init__(self, vocab_size):
        super().__init__()
        self.encoding = SimpleNamespace(max_length=None, max_cached_length=None)
        generator = torch.Generator().manual_seed(0)
        table = torch.randn(vocab_size + 1, vocab_size, generator=generator, dtype=torch.float64)
        self.scores = table * 2
        self.table = table[:vocab_size].log_softmax(-1)

    def hidden(self, tokens):
        return tokens[..., None]

    def unembed(self, hidden):
        return self.table[hidden[..., 0]].float()


class Trigram(Bigram):
    """log p(next | the last two tokens); the token before the first of a window is one of its own."""

    def hidden(self, tokens):
        before = torch.cat((torch.full_like(tokens[:, :1], len(self.scores) - 1), tokens[:, :-1]), 1)
        return torch.stack((tokens, before), -1)

    def unembed(self, hidden):
        return self.log_p(hidden[..., 0], hidden[..., 1]).float()

    def log_p(self, token, before):
        return (self.scores[token] + self.scores[before].roll(1, -1)).log_softmax(-1)


class Counting(Bigram):
    """The more tokens are in the window so far, the surer: every context length has a loss of its own."""

    def hidden(self, tokens):
        context = torch.arange(1, tokens.shape[1] + 1).expand(tokens.shape)
        return torch.stack((tokens, context), -1)

    def unembed(self, hidden):
        return self.log_p(hidden[..., 0], hidden[..., 1]).float()

    def log_p(self, token, context):
        return (self.table[token] * context[..., None].double().log1p()).log_softmax(-1)


@pytest.fixture(scope="session")
def bigram():
    return lambda recipe: known(recipe, Bigram)


@pytest.fixture(scope="session")
def trigram():
    return lambda recipe: known(recipe, Trigram)


@pytest.fixture(scope="session")
def counting():
    return lambda recipe: known(recipe, Counting)


def known(recipe, model):
    """A task and its source, with a model that needs no training."""
    source = open_data(recipe)
    return SimpleNamespace(recipe=recipe, card={}, model=model(source.vocab_size)), source


@pytest.fixture(scope="session")
def measure():
    """The rows of one protocol, flat, as `evaluate` has them."""

    def measure(protocol, task, source, lengths, team=None, advance=lambda tokens: None):
        rows = []
        for plan in build_protocol(protocol, task.recipe.evaluate).plan(task, source, lengths):
            about = {"parameters": plan.parameters, "targets": plan.targets.digest}
            for one in plan.lengths:
                if one.note is not None:
                    rows.append(about | {"length": one.length, "note": one.note})
                    continue
                numbers = one.score(Execution(team or alone(torch.device("cpu")), advance))
                for own in numbers if isinstance(numbers, list) else [numbers]:
                    rows.append(about | {"length": one.length} | own | {"units": own["units"].columns()})
            if registry.protocols.describe(protocol).first_plan_only and "note" not in rows[-1]:
                break
        return rows

    return measure
