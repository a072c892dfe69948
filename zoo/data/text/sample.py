"""A generated corpus, for work without a network.

Every document is the chronicle of one village. The names of its people, places and animals are made of
syllables and occur in no other document. Its facts are drawn once and repeated in other words up to the end.
To predict a repetition, a model must look back to the first mention: a longer context pays, as in real books.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import yaml

from zoo.data.draws import Chance, Draws
from zoo.data.text import Corpus

PEOPLE = 9
WORDS = SimpleNamespace(**yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")))


def open_sample(documents: int, words: int, corpus_seed: int) -> Corpus:
    """`documents` chronicles of about `words` words each: one in twenty, and at least one, for validation, as
    many for test, the others for training."""
    held_out = max(1, documents // 20)
    counts = {"train": documents - 2 * held_out, "valid": held_out, "test": held_out}

    def read(split: str) -> Iterator[str]:
        for number in range(counts[split]):
            yield chronicle(words, corpus_seed, split, number)

    # The words and the code are part of the corpus: a changed sentence is another corpus.
    here = Path(__file__)
    written = hashlib.sha256(here.read_bytes() + here.with_suffix(".yaml").read_bytes()).hexdigest()
    return Corpus("sample", ["sample", documents, words, corpus_seed, written], read)


@dataclass
class Person:
    """A villager, with the facts that the chronicle keeps coming back to."""

    facts: dict[str, str]
    mentioned: set[str] = field(default_factory=set)


def chronicle(words: int, seed: int, split: str, number: int) -> str:
    """One document: a paragraph a line, until `words` words are reached."""
    chance = Chance(Draws("sample", seed, split), number)
    names = invent(chance, 3 * PEOPLE + 2)
    village, river = names.pop(), names.pop()
    people = [invent_person(chance, village, names) for _ in range(PEOPLE)]
    place = {"village": village, "river": river}
    paragraphs = [chance.one(WORDS.openings).format(**place)]
    count = len(paragraphs[0].split())
    while count < words:
        # The cast grows through the document; each scene has two of it.
        entered = min(PEOPLE, 2 + count * PEOPLE * 2 // words)
        paragraph = scene(chance, chance.few(people[:entered], 2), place)
        paragraphs.append(paragraph)
        count += len(paragraph.split())
    return "\n".join(paragraphs) + "\n"


def invent(chance: Chance, count: int) -> list[str]:
    """Different names of two or three syllables."""
    names: list[str] = []
    while len(names) < count:
        parts = [chance.one(column) for column in WORDS.syllables[: 2 + chance.below(2)]]
        name = "".join(parts).capitalize()
        if name not in names:
            names.append(name)
    return names


def invent_person(chance: Chance, village: str, names: list[str]) -> Person:
    pronoun = chance.one(WORDS.pronouns)
    animal = chance.one(WORDS.animals)
    thing = f"{chance.one(WORDS.materials)} {chance.one(WORDS.objects)}"
    return Person(
        {
            "name": names.pop(),
            "street": names.pop(),
            "pet": names.pop(),
            "animal": animal,
            "a_animal": with_article(animal),
            "trade": chance.one(WORDS.trades),
            "colour": chance.one(WORDS.colours),
            "building": chance.one(WORDS.buildings),
            "thing": thing,
            "a_thing": with_article(thing),
            "code": " ".join(str(chance.below(10)) for _ in range(4)),
            "village": village,
            **dict(zip(("they", "them", "their"), pronoun, strict=True)),
        }
    )


def with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def scene(chance: Chance, cast: list[Person], place: dict[str, str]) -> str:
    """A paragraph about two people, the first above all."""
    hero, other = cast
    world = {**hero.facts, **place, "other": other.facts["name"]}

    def say(templates: Sequence[str]) -> str:
        kinds = {"hour": WORDS.hours, "weather": WORDS.weathers, "way": WORDS.ways}
        fresh = {kind: chance.one(choices) for kind, choices in kinds.items()}
        sentence = chance.one(templates).format(**world, **fresh)
        return sentence[0].upper() + sentence[1:]

    def tell(person: Person) -> str:
        kind = chance.one(list(WORDS.facts))
        first = kind not in person.mentioned
        person.mentioned.add(kind)
        sentence = chance.one(WORDS.facts[kind][0 if first else 1]).format(**person.facts)
        return sentence[0].upper() + sentence[1:]

    sentences = [say(WORDS.events)]
    for _ in range(2 + chance.below(4)):
        kind = chance.below(10)
        if kind < 5:
            sentences.append(tell(hero if chance.below(4) else other))
        elif kind < 6:
            sentences.append(say(WORDS.habits))
        elif kind < 8:
            question, answer = chance.one(WORDS.questions)
            sentences.append(say(WORDS.greetings) + " " + f"“{question}” “{answer}”".format(**world))
        elif kind < 9:
            sentences.append(say(WORDS.loans))
        else:
            sentences.append(say(WORDS.presences))
    return " ".join(sentences)
