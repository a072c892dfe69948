"""What a protocol measures, against models whose answers are known."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from zoo.data import open_data
from zoo.data.tokenizer import END
from zoo.evaluation.protocols import Setting, accuracy, nonoverlapping, work
from zoo.recipe import resolve

CPU = torch.device("cpu")


def setting(length, longest=None):
    return Setting(length, longest or length, CPU, advance=lambda tokens: None)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    words = [
        "a",
        "the",
        "The",
        "owl",
        "ate",
        "an",
        "Übermut",
        "of",
        "plum,",
        "and",
        "12",
        "more;",
        "nothing.",
    ]
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(words, 300)) + "\n\nThe end\tof it.\n" for _ in range(12)]
    for number, document in enumerate(documents):
        (folder / f"{number:02}.txt").write_text(document)

    def recipe(kind="decoder", *sets):
        return resolve(
            {
                "name": "tiny",
                "model": {"kind": kind, "encoding": "none", "d_model": 16, "num_layers": 1, "num_heads": 2},
                "data": {
                    "name": "text", "root": str(folder), "cache": str(folder / "cache"),
                    "sequence_length": 16, "batch_size": 4, "vocab_size": 270,
                },
                "optimizer": {"lr": 1e-3},
                "trainer": {"max_steps": 1},
                "evaluate": {"max_tokens": 200, "batch_tokens": 64},
            },
            sets,
        )  # fmt: skip

    return recipe


class Bigram(nn.Module):
    """log p(next | this token), from a table; no position is looked at, nor anything farther away."""

    encoding = SimpleNamespace(max_length=None)

    def __init__(self, vocab_size):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(
            vocab_size, vocab_size, generator=generator, dtype=torch.float64
        ).log_softmax(-1)

    def hidden(self, tokens):
        return tokens[..., None]

    def unembed(self, hidden):
        return self.table[hidden[..., 0]].float()


def bigram(recipe):
    source = open_data(recipe)
    return SimpleNamespace(recipe=recipe, model=Bigram(source.vocab_size)), source


@pytest.mark.parametrize("length", [1, 3, 7, 16, 50, 64, 199, 200])
def test_the_loss_is_exact_at_every_length(recipe, length):
    task, source = bigram(recipe())
    stream = torch.from_numpy(source.stream("valid")[:201].astype(np.int64))
    losses = -task.model.table[stream[:-1], stream[1:]]
    row = nonoverlapping(task, source, setting(length, 200))
    assert row["tokens"] == 200
    assert row["loss_nats"] == pytest.approx(losses.mean().item(), rel=1e-6)
    assert row["perplexity"] == pytest.approx(math.exp(row["loss_nats"]))


def test_bytes_and_words_are_those_of_the_text(recipe):
    task, source = bigram(recipe())
    stream = source.stream("valid")
    row = nonoverlapping(task, source, setting(16, 200))
    total = row["loss_nats"] * row["tokens"]
    text = source.tokenizer.decode(stream[1:201])
    assert "�" not in text and END not in text, "choose another cut of the text"
    num_bytes = len(text.encode())
    assert row["bits_per_byte"] == pytest.approx(total / math.log(2) / num_bytes)
    before = source.tokenizer.decode(stream[:1])
    begun = not before[-1].isspace() and not text[0].isspace()
    num_words = len(text.split()) - begun
    assert row["word_perplexity"] == pytest.approx(math.exp(total / num_words))


class Recorder(Bigram):
    """Notes what it is asked to predict, through the inputs that it sees."""

    def __init__(self, vocab_size):
        super().__init__(vocab_size)
        self.seen = []

    def hidden(self, tokens):
        self.seen += [row for row in tokens]
        return super().hidden(tokens)


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_the_same_targets_are_scored_at_every_length(recipe, kind):
    task, source = bigram(recipe(kind))
    told, losses = [], []
    for length in (8, 12, 50, 64, 200):
        task.model = Recorder(source.vocab_size)
        row = nonoverlapping(task, source, setting(length, 200))
        assert max(map(len, task.model.seen)) == length
        told.append(torch.cat(task.model.seen))
        losses.append((row["tokens"], round(row["loss_nats"], 6)))
    assert all(torch.equal(one, told[0]) for one in told)
    assert len(set(losses)) == 1 and 0 < losses[0][0] <= 200


def test_masked_targets_are_the_hidden_tokens_only(recipe):
    task, source = bigram(recipe("encoder"))
    row = nonoverlapping(task, source, setting(16, 200))
    assert 10 < row["tokens"] < 60  # about 15 % of 200
    assert "bits_per_byte" not in row and "word_perplexity" not in row
    block = source.dataset("valid", length=200)[0]
    scored = block["targets"] >= 0
    losses = -task.model.table[block["tokens"][scored], block["targets"][scored]]
    assert row["loss_nats"] == pytest.approx(losses.mean().item(), rel=1e-6)


def test_batches_hold_no_more_tokens_than_asked(recipe):
    sizes = []
    task, source = bigram(recipe("decoder", "evaluate.batch_tokens=40"))

    class Sized(Bigram):
        def hidden(self, tokens):
            sizes.append(tokens.numel())
            return super().hidden(tokens)

    task.model = Sized(source.vocab_size)
    nonoverlapping(task, source, setting(16, 200))
    assert max(sizes) == 32 and sum(sizes) == 200


def test_a_hopeless_loss_stays_a_number(recipe):
    task, source = bigram(recipe())
    task.model.table = task.model.table * 1000
    row = nonoverlapping(task, source, setting(16, 200))
    assert 100 < row["loss_nats"] < math.inf and row["perplexity"] == math.inf
    assert 0 < row["bits_per_byte"] < math.inf


# Max-index


class Pointer(nn.Module):
    """Points at a largest token: the first of them, or with `last` the last."""

    encoding = SimpleNamespace(max_length=None)

    def __init__(self, last=False):
        super().__init__()
        self.slope = 1e-2 if last else -1e-2

    def forward(self, tokens):
        return tokens.float() + self.slope * torch.arange(tokens.shape[1])


@pytest.fixture(scope="module")
def pointing():
    recipe = resolve(
        {
            "name": "tiny",
            "model": {"kind": "encoder", "encoding": "none", "d_model": 16, "num_layers": 1, "num_heads": 2},
            "data": {"name": "max_index", "sequence_length": 8, "batch_size": 4},
            "optimizer": {"lr": 1e-3},
            "trainer": {"max_steps": 1},
            "evaluate": {"samples": 100, "batch_tokens": 100},
        }
    )
    return lambda model: (SimpleNamespace(recipe=recipe, model=model), open_data(recipe))


@pytest.mark.parametrize("length", [8, 16, 31])
def test_a_perfect_pointer_is_always_right(pointing, length):
    row = accuracy(*pointing(Pointer()), setting(length))
    assert row["accuracy"] == row["value_accuracy"] == 1.0
    assert row["samples"] == 100 and row["tokens"] == 100 * length


@pytest.mark.parametrize("length", [8, 16, 31])
def test_accuracy_against_brute_force(pointing, length):
    task, source = pointing(Pointer(last=True))
    row = accuracy(task, source, setting(length))
    right = {"within": [], "beyond": []}
    for index in range(100):
        tokens = source.examples("test", length, 100)[index]["tokens"].tolist()
        first = tokens.index(max(tokens))
        last = length - 1 - tokens[::-1].index(max(tokens))
        right["within" if first < 8 else "beyond"].append(first == last)
    everything = right["within"] + right["beyond"]
    assert row["accuracy"] == pytest.approx(sum(everything) / 100) and 0 < row["accuracy"] < 1
    assert row["value_accuracy"] == 1.0  # the last of the largest is as large as the first
    for where, answers in right.items():
        assert row[f"samples_{where}"] == len(answers)
        expected = sum(answers) / len(answers) if answers else None
        assert row[f"accuracy_{where}"] == (pytest.approx(expected) if answers else None)
    assert (length > 8) == bool(right["beyond"])


def test_the_work_is_what_is_read(pointing, recipe):
    for (task, source), protocol in ((pointing(Pointer()), accuracy), (bigram(recipe()), nonoverlapping)):
        read = []
        protocol(task, source, Setting(12, 64, CPU, advance=read.append))
        assert sum(read) == work(task, source, 12, 64)
