"""Generated questions with answers as training examples."""

from __future__ import annotations

from zoo.data.algorithmic.answers import Answers
from zoo.data.algorithmic.questions import Questions
from zoo.data.source import GENERATED_SIZE, DataSource
from zoo.recipe import Recipe
from zoo.registry import datasets


class AlgorithmicSource(DataSource):
    """Prompts with answers, drawn as they are asked for."""

    def __init__(self, recipe: Recipe, kind: str, questions: Questions):
        super().__init__(recipe, kind, questions.vocab_size)
        self.questions = questions
        names = [option.name for option in datasets.describe(recipe.data.name).options]
        options = [f"{name} {getattr(recipe.data, name)}" for name in names]
        corpus = ", ".join([recipe.data.name, *options, f"format {questions.format}"])
        self.fingerprint = {"corpus": corpus, "tokenizer": ""}

    def examples(self, split: str, length: int, size: int, sizes: str = "largest") -> Answers:
        """`size` examples of the largest size that fits `length` tokens, or of "all" `sizes` that do. Only
        those of "train" depend on the seed. Raises InputError for a length at which none fits."""
        seed = self.recipe.seed if split == "train" else 0
        name = self.recipe.data.name
        return Answers(self.questions, name, length, size, seed=seed, split=split, sizes=sizes)

    def dataset(self, split: str) -> Answers:
        return self.examples(split, self.recipe.data.sequence_length, GENERATED_SIZE[split], "all")
