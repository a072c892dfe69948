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
from functools import partial
from pathlib import Path

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
    "look_up_3": "the same with the last three symbols",
    "trained_window": "read the trained length alone, and guess what lies beyond it",
    "unordered": "know how often each symbol occurs and not where",
    "unkeyed": "know the values and not their keys",
    "first": "point at the first position",
}
"""The strategies, for the head of a column."""
Floors = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
"""By study, measure, length and strategy."""
Tokens = Sequence[int]
Strategy = Callable[[Tokens, Tokens, int], Sequence[float]]
"""From question, scored tokens and the number of possible answers to the chance of each token to be right."""


def read_floors(stored: Path) -> Floors:
    return json.loads((stored / "floors.json").read_text())


def highest(floors: Floors, study: str, measure: str, length: int) -> tuple[float, str]:
    """The score of the best strategy that does not do the task, and its name."""
    known = floors[study][measure][str(length)]
    strategy = max(known, key=known.__getitem__)
    return known[strategy], strategy


def guess(question: Tokens, answer: Tokens, choices: int) -> Sequence[float]:
    return [1 / choices] * len(answer)


def repeat(question: Tokens, answer: Tokens, choices: int) -> Sequence[float]:
    # For sorted numbers this is the best without reading the question: given the numbers so far, the last
    # one, and at first the smallest, is always the most likely next one.
    return [float(last == token) for last, token in zip([FIRST, *answer], answer, strict=False)]


def look_up_next(question: Tokens, answer: Tokens, choices: int, symbols: int = 1) -> Sequence[float]:
    """Find the last symbols, or as many as there are, and say the next one."""
    chances = [1 / choices]
    for end in range(1, len(answer)):
        last = [*answer[max(0, end - symbols) : end]]
        places = (at for at in range(len(last), len(question)) if question[at - len(last) : at] == last)
        found = [question[at] == answer[end] for at in places]
        chances.append(sum(found) / len(found))
    return chances


def look_up_previous(question: Tokens, answer: Tokens, choices: int, symbols: int = 1) -> Sequence[float]:
    return look_up_next(question[::-1], answer, choices, symbols)


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
    "copy": {
        "repeat": repeat,
        "look_up": look_up_next,
        "look_up_3": partial(look_up_next, symbols=3),
        "unordered": unordered,
    },
    "reverse": {
        "repeat": repeat,
        "look_up": look_up_previous,
        "look_up_3": partial(look_up_previous, symbols=3),
        "unordered": unordered,
    },
    "sort": {"repeat": repeat},
    "selective_copy": {"unordered": unordered},
    "associative_recall": {"unkeyed": unordered},
    "flip_flop": {"repeat": last_value, "unordered": most_written},
}
"""The strategies for each dataset, besides a guess."""


def last_instruction(question: Tokens, answer: Tokens) -> list[int]:
    """The place of the last instruction to write or read."""
    return [max(at for at in range(0, len(question), 2) if question[at] != FIRST + IGNORE)]


def symbols_in_order(question: Tokens, answer: Tokens) -> list[int]:
    """The places of the symbols that are not blank."""
    return [at for at, token in enumerate(question) if token != FIRST]


def keys(question: Tokens, answer: Tokens) -> list[int]:
    """The places of the keys whose values are asked for."""
    return [question.index(key) for key in answer[::2]]


def from_the_end(question: Tokens, answer: Tokens) -> list[int]:
    return [*range(len(question))][::-1]


PLACES: Mapping[str, Callable[[Tokens, Tokens], list[int]]] = {
    "flip_flop": last_instruction,
    "selective_copy": symbols_in_order,
    "associative_recall": keys,
    "reverse": from_the_end,
}
"""Where in the question the tokens of an answer are, for the datasets in which a trained model has read them
at every distance. A copy has one distance for each length, and a sorted token no place of its own."""


def in_window(
    question: Tokens, answer: Tokens, asked: slice, places: Sequence[int], window: int
) -> list[bool]:
    """Whether the place of each asked token is among the last `window` tokens before it."""
    # The model has read BEGIN, the question, ASK and the answer so far.
    read = (1 + len(question) + 1 + at for at in range(len(answer))[asked])
    return [1 + place >= end - window for place, end in zip(places, read, strict=True)]


def floors_of_answers(name: str, examples: Answers, window: int) -> dict[str, dict[str, float]]:
    """The scores of the strategies for a dataset, by measure and strategy.

    Args:
        window: the trained length, or 0 at a length that is not longer.
    """
    drawn = [examples.example(index) for index in range(len(examples))]
    asked = examples.questions.asked
    pairs = [(prompt[1:-1], answer[asked]) for prompt, answer in drawn]
    choices = len({token for _, answer in pairs for token in answer})
    found: dict[str, dict[str, float]] = {"accuracy": {}, "token_accuracy": {}}
    scores = {
        strategy: [chances(*pair, choices) for pair in pairs]
        for strategy, chances in {"guess": guess, **ANSWERING[name]}.items()
    }
    if window and name in PLACES:
        seen = [
            in_window(prompt[1:-1], answer, asked, PLACES[name](prompt[1:-1], answer), window)
            for prompt, answer in drawn
        ]
        scores["trained_window"] = [[1.0 if one else 1 / choices for one in own] for own in seen]
    for strategy, each in scores.items():
        found["accuracy"][strategy] = float(np.mean([np.prod(one) for one in each]))
        found["token_accuracy"][strategy] = float(np.mean([np.mean(one) for one in each]))
    return found


def floors_of_pointers(tokens: np.ndarray, answers: np.ndarray, window: int) -> dict[str, dict[str, float]]:
    """The same for max-index. A pointer that knows no order ties all positions of the largest token."""
    largest = (tokens == tokens.max(axis=1, keepdims=True)).sum(axis=1)
    scores = {"guess": 1 / tokens.shape[1], "first": (answers == 0).mean(), "unordered": (1 / largest).mean()}
    if window:
        scores["trained_window"] = (answers < window).mean()
    return {"accuracy": {strategy: float(score) for strategy, score in scores.items()}}


def floors(study: Study, samples: int = SAMPLES, trained: int = 0) -> dict[str, dict[str, dict[str, float]]]:
    """The scores of all strategies for a study, by measure, length and strategy. A reading has the trained
    length of its study."""
    recipe = study.recipe("none", 0)
    source, trained = open_data(recipe), trained or recipe.data.sequence_length
    factors = FACTORS if study.shown is None else ()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for length in sorted({*study.lengths, *(int(factor * trained) for factor in factors)}):
        # Those of training: of one that is held out, four are drawn.
        examples = source.examples("train", length, samples)
        window = trained if length > trained else 0
        if source.kind == "pointer":
            batch = examples.batch(range(samples))
            scores = floors_of_pointers(batch["tokens"].numpy(), batch["answer"].numpy(), window)
        else:
            scores = floors_of_answers(recipe.data.name, examples, window)
        for measure, own in scores.items():
            rounded = {strategy: round(score, 4) for strategy, score in own.items()}
            found.setdefault(measure, {})[str(length)] = rounded
    return found


def floors_file(studies: Sequence[Study]) -> bytes:
    """The floors of the tasks of the leaderboard and of their readings, as JSON."""
    found = {}
    for study in studies:
        if study.leaderboard and study.is_task:
            trained = study.recipe("none", 0).data.sequence_length
            found |= {page.title: floors(page, trained=trained) for page in study.pages if page.is_task}
    return (json.dumps(found, indent=1) + "\n").encode()
