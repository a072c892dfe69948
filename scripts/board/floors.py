"""Scores of strategies that do not do a task: below the best of them, a score says nothing about the task.

`python scripts/leaderboard.py --floors` writes `scripts/results/floors.json`. The strategies answer
examples drawn as those of the models. As with a model, the true tokens before each one are given:
`token_accuracy` is the share of right tokens, `accuracy` that of whole answers. A strategy gives for
each token the chance that it is right; a guess between two has 1/2. The file is

    {study: {measure: {length: {strategy: value}}}}

at the lengths of each study and at `FACTORS` of its trained length, and at the lengths of each reading.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from results import Study
from zoo.data import open_data
from zoo.data.algorithmic import IGNORE
from zoo.data.questions import FIRST
from zoo.data.questions.answers import Answers

SAMPLES = 12_000
"""Examples of each length: the largest standard error of a share is 0.5/sqrt(12,000) = 0.0046."""
FACTORS = (1, 1.5, 2, 3, 4, 8)
DESCRIPTIONS = {
    "guess": "guess among all answers",
    "repeat": "say the last symbol again",
    "look_up": "find the last symbol in the question, at one of its places, and say its neighbour",
    "unordered": "know how often each symbol occurs and not where",
    "unkeyed": "know the values and not their keys",
    "first": "point at the first position",
}
"""The strategies, for the head of a column."""
Tokens = Sequence[int]
Strategy = Callable[[Tokens, Tokens, int], Sequence[float]]
"""From question, scored tokens and the number of possible answers to the chance of each token to be right."""


def guess(question: Tokens, answer: Tokens, choices: int) -> Sequence[float]:
    return [1 / choices] * len(answer)


def repeat(question: Tokens, answer: Tokens, choices: int) -> Sequence[float]:
    # For sorted numbers this is the best without reading the question: given the numbers so far, the last
    # one, and at first the smallest, is always the most likely next one.
    return [float(last == token) for last, token in zip([FIRST, *answer], answer, strict=False)]


def look_up_next(question: Tokens, answer: Tokens, choices: int) -> Sequence[float]:
    pairs, places = Counter(pairwise(question)), Counter(question[:-1])
    return [1 / choices, *(pairs[last, token] / places[last] for last, token in pairwise(answer))]


def look_up_previous(question: Tokens, answer: Tokens, choices: int) -> Sequence[float]:
    return look_up_next(question[::-1], answer, choices)


def unordered(question: Tokens, answer: Tokens, choices: int) -> Sequence[float]:
    """Say one of the most frequent symbols that are left."""
    left, chances = Counter(), []
    for token in reversed(answer):
        left[token] += 1
        chances.append(_of_most_frequent(left, token))
    return chances[::-1]


def last_value(question: Tokens, answer: Tokens, choices: int) -> Sequence[float]:
    return [float(question[-1] == answer[0])]


def most_written(question: Tokens, answer: Tokens, choices: int) -> Sequence[float]:
    """Say the symbol that was written or read most often."""
    pairs = zip(question[::2], question[1::2], strict=True)
    counts = Counter(value for instruction, value in pairs if instruction != FIRST + IGNORE)
    return [_of_most_frequent(counts, answer[0])]


def _of_most_frequent(counts: Counter[int], token: int) -> float:
    """The chance that one of the most frequent tokens, of several any, is this one."""
    most = max(counts.values())
    return (counts[token] == most) / sum(count == most for count in counts.values())


ANSWERING: Mapping[str, Mapping[str, Strategy]] = {
    "copy": {"repeat": repeat, "look_up": look_up_next, "unordered": unordered},
    "reverse": {"repeat": repeat, "look_up": look_up_previous, "unordered": unordered},
    "sort": {"repeat": repeat},
    "selective_copy": {"unordered": unordered},
    "associative_recall": {"unkeyed": unordered},
    "flip_flop": {"repeat": last_value, "unordered": most_written},
}
"""The strategies for each dataset, besides a guess."""


def floors_of_answers(name: str, examples: Answers) -> dict[str, dict[str, float]]:
    """The scores of the strategies for a dataset, by measure and strategy."""
    drawn = [examples.example(index) for index in range(len(examples))]
    asked = examples.questions.asked
    pairs = [(prompt[1:-1], answer[asked]) for prompt, answer in drawn]
    choices = len({token for _, answer in pairs for token in answer})
    found: dict[str, dict[str, float]] = {"accuracy": {}, "token_accuracy": {}}
    for strategy, chances in {"guess": guess, **ANSWERING[name]}.items():
        each = [chances(*pair, choices) for pair in pairs]
        found["accuracy"][strategy] = float(np.mean([np.prod(one) for one in each]))
        found["token_accuracy"][strategy] = float(np.mean([np.mean(one) for one in each]))
    return found


def floors_of_pointers(tokens: np.ndarray, answers: np.ndarray) -> dict[str, dict[str, float]]:
    """The same for max-index. A pointer that knows no order ties all positions of the largest token."""
    largest = (tokens == tokens.max(axis=1, keepdims=True)).sum(axis=1)
    scores = {"guess": 1 / tokens.shape[1], "first": (answers == 0).mean(), "unordered": (1 / largest).mean()}
    return {"accuracy": {strategy: float(score) for strategy, score in scores.items()}}


def floors(study: Study, samples: int = SAMPLES) -> dict[str, dict[str, dict[str, float]]]:
    """The scores of all strategies for a study, by measure, length and strategy."""
    recipe = study.recipe("none", 0)
    source, trained = open_data(recipe), recipe.data.sequence_length
    factors = FACTORS if study.shown is None else ()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for length in sorted({*study.lengths, *(int(factor * trained) for factor in factors)}):
        # Those of training: of one that is held out, four are drawn.
        examples = source.examples("train", length, samples)
        if source.kind == "pointer":
            batch = examples.batch(range(samples))
            scores = floors_of_pointers(batch["tokens"].numpy(), batch["answer"].numpy())
        else:
            scores = floors_of_answers(recipe.data.name, examples)
        for measure, own in scores.items():
            rounded = {strategy: round(score, 4) for strategy, score in own.items()}
            found.setdefault(measure, {})[str(length)] = rounded
    return found


def floors_file(studies: Sequence[Study]) -> bytes:
    """The floors of the tasks of the leaderboard and of their readings, as JSON."""
    shown = [one for study in studies if study.leaderboard for one in study.pages]
    tasks = [one for one in shown if one.is_task]
    return (json.dumps({study.title: floors(study) for study in tasks}, indent=1) + "\n").encode()
