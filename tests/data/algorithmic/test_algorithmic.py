"""Every task is solved by a solver that knows its definition and not how it is drawn.

Solvers read the tokens of a prompt: 1 begins it, 2 ends it, symbol s is token s + 3.
"""

import re
from collections import Counter
from itertools import pairwise

from zoo.data.draws import Chance, Draws

BRACKETS = "([{<abcdefgh", ")]}>ABCDEFGH"


def copy(question, **_):
    return question


def reverse(question, **_):
    return [question[-1 - place] for place in range(len(question))]


def sort(question, **_):
    counts = Counter(question)
    return [number for number in range(max(question) + 1) for _ in range(counts[number])]


def addition(question, order="standard", index_hints=0, **_):
    text = "".join(
        "+" if symbol == 10 else chr(65 + symbol) if symbol > 10 else str(symbol) for symbol in question
    )
    one, two = re.sub("[^0-9+]", "", text).split("+")
    assert len(one) == len(two)
    if order == "all_reversed":
        one, two = one[::-1], two[::-1]
    total = [int(digit) for digit in str(int(one) + int(two)).zfill(len(one) + 1)]
    answer = total if order == "standard" else total[::-1]
    if not index_hints:
        return answer
    first, second = (re.sub("[0-9]", "", part) for part in text.split("+"))
    hints = [ord(hint) - 65 - 11 for hint in first]
    assert first == second
    step = 1 if order == "all_reversed" else -1
    assert all((later - hint) % index_hints == step % index_hints for hint, later in pairwise(hints))
    ones = hints[0 if order == "all_reversed" else -1]
    places = range(len(answer)) if order != "standard" else reversed(range(len(answer)))
    return [symbol for place, digit in zip(places, answer, strict=True)
            for symbol in (11 + (ones + place) % index_hints, digit)]  # fmt: skip


def parity(question, **_):
    return [len([bit for bit in question if bit == 1]) & 1]


def majority(question, **_):
    (winner, most), *others = Counter(question).most_common()
    assert all(count < most for _, count in others), "a tie"
    return [winner]


def flip_flop(question, **_):
    """0 writes, 1 ignores, 2 reads; values from 3. Also whether the reads of the question are true."""
    pairs = list(zip(question[::2], question[1::2], strict=True))
    written = [(place, value) for place, (instruction, value) in enumerate(pairs) if instruction == 0]
    for place, (instruction, value) in enumerate(pairs):
        assert instruction in (0, 1, 2) and value >= 3
        if instruction == 2:
            assert value == [said for before, said in written if before < place][-1]
    assert written[0][0] == 0
    return [written[-1][1]]


def selective_copy(question, **_):
    return [symbol for symbol in question if symbol]


def associative_recall(question, given=(), **_):
    pairs = re.findall(r"(\d+),(\d+)", ",".join(map(str, [symbol for symbol in question if symbol])))
    value_of = {int(key): int(value) for key, value in pairs}
    assert len(value_of) == len(pairs) and sorted(given) == sorted(value_of)
    return [symbol for key in given for symbol in (key, value_of[key])]


def dyck(question, num_kinds=2, **_):
    opening, closing = (part[:num_kinds] for part in BRACKETS)
    text = "".join((opening + closing)[symbol] for symbol in question)
    matched = "|".join(re.escape(a + b) for a, b in zip(opening, closing, strict=True))
    while (shorter := re.sub(matched, "", text)) != text:
        text = shorter
    assert set(text) <= set(opening), "a bracket closed that was not open"
    return [2 * num_kinds + len(text), *[num_kinds + opening.index(mark) for mark in reversed(text)]]


SOLVERS = {
    one.__name__: one
    for one in (
        copy, reverse, sort, addition, parity, majority, flip_flop, selective_copy, associative_recall, dyck,
    )
}  # fmt: skip


def solved(name, task, changes, prompt, answer):
    """The answer that the solver gives, in tokens. It sees of the true one what the task gives, no more."""
    begin, *question, ask = prompt
    assert begin == 1 and ask == 2 and min(question) >= 3
    asked = set(range(len(answer))[task.asked])
    given = [token - 3 for place, token in enumerate(answer) if place not in asked]
    found = SOLVERS[name]([token - 3 for token in question], given=given, **changes)
    return [symbol + 3 for symbol in found]


def examples(task, size, count=20, seed=0):
    draws = Draws("test", seed)
    return [task.example(size, Chance(draws, row, 64)) for row in range(count)]


def test_an_independent_solver_finds_every_answer(case):
    name, task, changes = case
    for seed in range(2):
        for size in [*range(task.smallest, task.smallest + 30), 150, 400]:
            for prompt, answer in examples(task, size, 8, seed):
                assert solved(name, task, changes, prompt, answer) == answer


def test_an_example_needs_as_many_tokens_as_its_size_says_and_no_more(cases):
    for name, task, changes in cases:
        for size in (task.smallest, task.smallest + 20, task.smallest + 40):
            spare = []
            for near in (size, size + 1):  # an even number of brackets leaves an even number open
                needed = [len(prompt) + len(answer) - 1 for prompt, answer in examples(task, near, 300)]
                spare.append(task.tokens(near) - max(needed))
            assert min(spare) == 0 and max(spare) <= 1, (name, changes)


def test_the_largest_size_is_the_last_that_fits(cases):
    for name, task, changes in cases:
        needed = {size: task.tokens(size) for size in range(task.smallest, 200)}
        assert list(needed.values()) == sorted(set(needed.values())), (name, changes)
        for length in range(1, 150):
            fits = max([size for size in needed if needed[size] <= length], default=0)
            assert task.largest(length) == fits, (name, changes)


def test_tokens_are_those_of_the_options_at_every_length(cases):
    """Every target of a long example is also a target of examples of a training length."""

    def used(task, sizes, count):
        every, asked = set(), set()
        for size in sizes:
            for prompt, answer in examples(task, size, count, seed=size):
                every.update(prompt, answer)
                asked.update(answer[task.asked])
        return every, asked

    for name, task, changes in cases:
        short, asked_short = used(task, range(task.smallest, task.largest(80) + 1), 60)
        long, asked_long = used(task, [task.largest(600), task.largest(601)], 60)
        assert long <= short <= set(range(1, task.vocab_size)), (name, changes)
        assert asked_long <= asked_short, (name, changes)
        # With probability 0 or 1 to ignore, one instruction never occurs.
        never = {0: {4}, 1: {5}}.get(changes.get("ignore_probability"), set())
        assert set(range(1, task.vocab_size)) - short == never, (name, changes)


def test_answers_of_one_token_cannot_be_guessed(task_with):
    """One is as likely as the other."""
    for name in ("parity", "majority", "flip_flop"):
        counts = Counter(answer[0] for _, answer in examples(task_with(name), 20, 4000))
        assert len(counts) == 2 and all(near(count / 4000, 1 / 2, 4000) for count in counts.values())


def near(share, probability, count):
    """Whether a share of independent draws is within five standard deviations of its probability."""
    return abs(share - probability) <= 5 * (probability * (1 - probability) / count) ** 0.5


def test_instructions_come_with_their_published_probabilities(task_with):
    for ignored in (0.1, 0.8, 0.98):
        task = task_with("flip_flop", {"ignore_probability": ignored})
        # All but the first, which always writes.
        instructions = [token - 3 for prompt, _ in examples(task, 200, 100) for token in prompt[3:-1:2]]
        counts = Counter(instructions)
        wanted = {0: (1 - ignored) / 2, 1: ignored, 2: (1 - ignored) / 2}
        for instruction, probability in wanted.items():
            assert near(counts[instruction] / len(instructions), probability, len(instructions))


def test_brackets_open_and_close_as_often_where_both_can_be(task_with):
    task, free = task_with("dyck", {"max_depth": 3}), []
    for prompt, _ in examples(task, 200, 100):
        depth = 0
        for token in prompt[1:-1]:
            opens = token - 3 < 2
            if 0 < depth < 3:
                free.append(opens)
            depth += 1 if opens else -1
            assert 0 <= depth <= 3
    assert near(sum(free) / len(free), 0.5, len(free))


def test_the_data_lies_anywhere_in_the_prompt(task_with):
    for name in ("selective_copy", "associative_recall"):
        task, size, count = task_with(name), 60, 600
        filled = Counter(
            place
            for prompt, _ in examples(task, size, count)
            for place in range(size)
            if prompt[1 + place] > 3
        )
        # As many tokens in the first third as in the last.
        thirds = [sum(filled[place] for place in range(start, start + 20)) for start in (0, 20, 40)]
        assert sum(thirds) == 16 * count
        assert all(near(third / sum(thirds), 1 / 3, sum(thirds) / 2) for third in (thirds[0], thirds[2]))
