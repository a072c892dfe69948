"""The size of a training before it starts: parameters, tokens, epochs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import nn

from zoo import registry
from zoo.data import build_dataset
from zoo.data.source import DataSource
from zoo.data.text.datasets import TextSource, TokenizedText
from zoo.errors import InputError
from zoo.launch.devices import devices_taken
from zoo.models.transformer import FeedForward
from zoo.recipe import Recipe
from zoo.tasks import build_encoding, build_task
from zoo.training.auto import choose_auto


@dataclass(frozen=True)
class Plan:
    """A training in numbers.

    Attributes:
        vocab_size: None where the tokenizer is not here; `parameters` is then without the embedding.
        corpus_tokens: None where the data is generated, or not tokenized yet.
        valid_tokens, validations: tokens of a validation, and validations of the run; None where the data is
            not tokenized yet.
    """

    recipe: Recipe
    parameters: int
    embedding: int
    encoding: int
    d_ff: int
    vocab_size: int | None
    corpus_tokens: int | None = None
    valid_tokens: int | None = None
    validations: int | None = None

    @classmethod
    def of(cls, recipe: Recipe, model: nn.Module, source: DataSource | None) -> Plan:
        """The plan of a recipe with its model and its data; None for data that is not tokenized yet."""
        sizes = {name: weight.numel() for name, weight in model.named_parameters()}
        return cls(
            recipe,
            parameters=sum(sizes.values()),
            embedding=sum(n for name, n in sizes.items() if name.startswith(("tokens.", "head."))),
            encoding=sum(n for name, n in sizes.items() if name.startswith("encoding.")),
            d_ff=next(one.down.in_features for one in model.modules() if isinstance(one, FeedForward)),
            vocab_size=model.tokens.num_embeddings,
            **(_of_data(recipe, source) if source else {}),
        )

    @property
    def tokens(self) -> int:
        """The tokens of all steps."""
        return self.recipe.tokens_per_step * self.recipe.trainer.max_steps

    @property
    def epochs(self) -> float | None:
        """Passes over the training text; None where its size is not known."""
        return self.tokens / self.corpus_tokens if self.corpus_tokens else None

    @property
    def devices(self) -> int:
        trainer = self.recipe.trainer
        return devices_taken(trainer.devices, trainer.accelerator) * trainer.num_nodes

    @property
    def sequences(self) -> float:
        """Sequences of one forward pass on one device."""
        return self.recipe.data.batch_size / self.devices / self.recipe.trainer.accumulate_grad_batches

    @property
    def validation_share(self) -> float:
        """Share of the compute that validation takes. Of a training step a third is the forward pass, and a
        quarter with gradient checkpointing; a validation has nothing else."""
        forward = self.valid_tokens * self.validations
        return forward / (forward + self.tokens * (4 if self.recipe.model.gradient_checkpointing else 3))

    def validation_text(self) -> str:
        """`validation: 131 k tokens, 4 times, 2.4 % of the compute`."""
        if self.valid_tokens is None:
            return "validation: unknown until the text is tokenized (`zoo prepare`)"
        if not self.valid_tokens * self.validations:
            return "validation: none"
        times = "once" if self.validations == 1 else f"{self.validations} times"
        share = f"{100 * self.validation_share:.2g} % of the compute"
        return f"validation: {short(self.valid_tokens)} tokens, {times}, {share}"

    def size_text(self) -> str:
        """`5.7 M tokens`, and the epochs where they are known."""
        return f"{short(self.tokens)} tokens" + (f", {self.epochs:.3g} epochs" if self.epochs else "")

    def warnings(self) -> list[str]:
        """Warnings of a text that repeats, and of a learning rate of Adam that is far from published ones.

        Published ones fall as 1/width: 1e-4 (BERT), 6e-4 (GPT-3), 2e-3 (FoX) at 768, 6e-5 (GPT-3) at 12,288.
        """
        recipe, found = self.recipe, []
        if self.epochs is not None and self.epochs > 1:
            size = short(self.corpus_tokens)
            found.append(f"warning: the corpus repeats: {self.epochs:.3g} epochs of {size} tokens")
        rate, width = recipe.optimizer.lr, recipe.model.d_model
        usual = 0.6 / max(width, 128)
        far = rate > 8 * usual or (8 * rate < usual and not recipe.init_from)
        if far and issubclass(registry.optimizers.load(recipe.optimizer.name), torch.optim.Adam):
            text = f"{rate / usual:.3g} times what published runs of width {width} take"
            found.append(f"warning: optimizer.lr={rate:g} is {text}; try --set optimizer.lr={usual:.1g}")
        return found

    def lines(self) -> list[str]:
        """All numbers as text."""
        data = self.recipe.data
        embedding = f"embedding {short(self.embedding)}" if self.vocab_size else "without the embedding"
        return [
            f"parameters: {short(self.parameters)} ({embedding}, encoding {short(self.encoding)}); d_ff "
            f"{self.d_ff}, vocabulary {self.vocab_size or 'unknown'}",
            f"tokens: {short(self.recipe.tokens_per_step)} per step; {self.size_text()} in all",
            self.validation_text(),
            f"sequences: {data.batch_size} of {data.sequence_length} tokens per step, {self.sequences:g} at "
            f"a time on {self.devices} device{'s' * (self.devices > 1)}",
            *self.warnings(),
        ]


def plan_of(recipe: Recipe) -> Plan:
    """The plan of a recipe, before its data is opened and its model is built.

    Raises:
        InputError: an encoding that cannot be built, or data that is here and cannot be used.
    """
    recipe = choose_auto(recipe)
    dataset, tokens, source, vocab_size = build_dataset(recipe.data), None, None, None
    if isinstance(dataset, TokenizedText):
        with suppress(InputError):  # the tokenizer or the data may be missing here
            given = dataset.given_tokenizer()
            vocab_size = given.vocab_size if given else dataset.vocab_size
            tokens = dataset.tokens(recipe, build=False)
    if tokens or not isinstance(dataset, TokenizedText):
        source = dataset.open(recipe)
        vocab_size = source.vocab_size
    build_encoding(recipe)
    with torch.device("meta"):
        model = build_task(recipe, vocab_size or 1).model
    plan = Plan.of(recipe, model, source)
    if vocab_size is not None:
        return plan
    return replace(plan, parameters=plan.parameters - plan.embedding, embedding=0, vocab_size=None)


def _of_data(recipe: Recipe, source: DataSource) -> dict[str, int | None]:
    """The fields of a `Plan` that depend on the data."""
    data, every = recipe.data, recipe.validation_interval
    if isinstance(every, float):
        every = max(1, int(every * (len(source.dataset("train")) // data.batch_size)))
    is_text = isinstance(source, TextSource) and source.kind == "text"
    return {
        "corpus_tokens": len(source.stream("train")) if is_text else None,
        "valid_tokens": source.valid_size() * data.sequence_length,
        "validations": recipe.trainer.max_steps // every,
    }


def short(number: float) -> str:
    """`950`, `8.19 k`, `5.73 M`."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"
