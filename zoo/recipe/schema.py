"""The recipe: everything that decides a run, as frozen models.

A recipe is made by `zoo.recipe.read_recipe` (a file) or `zoo.recipe.resolve` (a mapping). They also resolve
the encoding (`sections.py`), and check what must hold between keys (`rules.py`).
The docstring under each field is its description in the JSON Schema that editors read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    SerializeAsAny,
    Tag,
    ValidationInfo,
)

from zoo.recipe.fields import Affects, Count, Flag, Number, Positive, Section, Seed, Text
from zoo.recipe.sections import (
    BASES,
    DataConfig,
    EvaluateConfig,
    NamedConfig,
    OptimizerConfig,
    section_model,
)
from zoo.recipe.trainer import TrainerConfig, lightning_class

# Far above every published model; beyond them the building itself would not come to an end.
MOST_LAYERS, WIDEST = 1000, 1 << 20

WindowPattern = Positive | None | Annotated[tuple[Positive | None, ...], Field(min_length=1)]


def _shortest_pattern(value: WindowPattern) -> WindowPattern:
    """One spelling each: `[64, null, 64, null]` is `[64, null]`, and `[64]` is `64`."""
    if not isinstance(value, tuple):
        return value
    shortest = next(
        n for n in range(1, len(value) + 1) if len(value) % n == 0 and value == value[:n] * (len(value) // n)
    )
    return value[:shortest] if shortest > 1 else value[0]


ScaledHeads = Literal["all", "without_positions"]


class Adaptive(Section):
    """Logits times 1 + softplus(w_b x) (ln(n + 1))^(2 tanh(w_g x)) for a query with input x that sees n keys,
    as in ASEntmax."""

    name: Literal["adaptive"] = "adaptive"
    """The kind of scale."""
    heads: ScaledHeads = "all"
    """The heads that are scaled: all, or those in which no encoding of the layer reads positions."""
    bias: Flag = False
    """Whether w_b x and w_g x have a bias."""


class Temperature(Section):
    """Logits times 1 + scale ln(1 + floor((p + offset) / length)) for a query at position p."""

    name: Literal["temperature"] = "temperature"
    """The kind of scale."""
    scale: Annotated[Number, Field(ge=0)] = 0.1
    """Factor of the growth of the logits."""
    length: Positive = 8192
    """Positions after which they grow by the first step, in tokens."""
    offset: Literal[0, 1] = 1
    """1 as in Llama 4, 0 as in Ministral 3, whose steps come one token later."""
    heads: ScaledHeads = "all"
    """The heads that are scaled: all, or those in which no encoding of the layer reads positions."""


SCALES: dict[str, type[Section]] = {"adaptive": Adaptive, "temperature": Temperature}
"""Kinds of `model.logit_scale` that have options."""


def _scale_with_options(value: Any) -> Any:
    """A kind of scale, of a name or a mapping that has no other key; one that has no options is its name."""
    name = value.get("name") if isinstance(value, dict) and len(value) == 1 else value
    return SCALES[name]() if isinstance(name, str) and name in SCALES else name


def _kind_of_scale(value: Any) -> str:
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return name if name in [*SCALES] else "without options"


LogitScale = Annotated[
    Annotated[Literal["none", "log_n", "scalable_softmax", "adaptive", "temperature"], Tag("without options")]
    | Annotated[Adaptive, Tag("adaptive")]
    | Annotated[Temperature, Tag("temperature")],
    Discriminator(_kind_of_scale),
    BeforeValidator(_scale_with_options),
]


class ModelConfig(Section):
    """The transformer and its positional encoding."""

    kind: Literal["decoder", "encoder"]
    """A decoder attends to earlier tokens (causal), an encoder to the whole sequence."""
    encoding: Any
    """The positional encoding: a name, a mapping of a name and its options, or a list that combines several.
    In a resolved recipe always a mapping, or a list of mappings, with every option given."""
    d_model: Annotated[Positive, Field(le=WIDEST)]
    """Width of the residual stream."""
    num_layers: Annotated[Positive, Field(le=MOST_LAYERS)]
    """Number of blocks."""
    num_heads: Positive
    """Query heads per layer; they divide d_model."""
    num_kv_heads: Positive | None = None
    """Key and value heads for grouped-query attention; they divide num_heads. null: as many as num_heads."""
    head_dim: Positive | None = None
    """Width of a head. null: d_model divided by num_heads."""
    d_ff: Annotated[Positive, Field(le=4 * WIDEST)] | None = None
    """Width inside the feed-forward layer. null: the model's own rule from d_model and the activation."""
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Normalisation of each sub-layer."""
    norm_position: Literal["pre", "post", "output", "both"] = "pre"
    """Normalise the input of a sub-layer (pre), its output before it is added to the input (output, as in
    OLMo 2), input and output (both, as in Gemma 3), or the sum (post, as in BERT)."""
    first_norm: Flag = True
    """Whether the input of the first layer's attention is normalised; ModernBERT does not."""
    norm_eps: Annotated[Number, Field(gt=0, lt=1)] | None = None
    """Constant that normalisation adds to a variance or a mean square. null: 1e-5 in layernorm; in rmsnorm
    the machine epsilon of the precision that it is computed in."""
    norm_bias: Flag = True
    """Whether layernorm has an offset besides its gain."""
    embedding_scale: Annotated[Number, Field(gt=0)] | Literal["sqrt_d_model"] = 1.0
    """Factor of token vectors before anything is added to them; Gemma's is sqrt_d_model."""
    embedding_norm: Flag | Literal["with_positions"] = False
    """Whether token vectors are normalised before the first layer, as in BLOOM. with_positions: after the
    encoding has added vectors of positions to them, as in BERT."""
    activation: Literal["gelu", "gelu_tanh", "relu", "swiglu", "geglu", "geglu_tanh"] = "gelu"
    """Non-linearity of the feed-forward layer; gelu_tanh is its approximation by tanh, as in GPT-2. swiglu,
    geglu and geglu_tanh are gated by SiLU, GELU and gelu_tanh."""
    bias: Literal["none", "qkv", "attention", "feed_forward", "all"] = "none"
    """Projections with biases: of queries, keys and values; of attention; of the feed-forward layer."""
    parallel_residual: Flag | Literal["shared_norm"] = False
    """Whether attention and feed-forward read the same input and are added together, as in GPT-NeoX.
    shared_norm: both read one norm of it, as in GPT-J and Cohere's models."""
    dropout: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Probability with which the outputs of embedding, attention and feed-forward are dropped in training."""
    init_std: Annotated[Number, Field(gt=0, lt=10)] | Literal["auto"] = "auto"
    """Standard deviation of the initial weights; of projections into the residual stream it is divided by
    sqrt(2 num_layers). auto: 1/sqrt(width of a matrix's input), so that the first scores do not shrink with
    d_model; of the token embedding 1/sqrt(d_model). GPT-2 has 0.02."""
    tie_embeddings: Flag = True
    """Whether the output layer shares the weights of the token embedding."""
    head_transform: Flag = False
    """Whether a dense layer, the activation without its gate and a norm come before the output layer, which
    then has a bias, as in BERT. The dense layer has one where `bias` is all."""
    unembedding_scale: Annotated[Number, Field(gt=0)] = 1.0
    """Factor of the products of the last layer's output and the output vectors of tokens, as in Cohere's
    models."""
    window: Annotated[
        WindowPattern, AfterValidator(_shortest_pattern), Affects("weights", after_training=True)
    ] = None
    """Sliding attention window, in tokens: a query sees so many on each side it looks to, itself included.
    null: no window. A list, no longer than the layers, is a pattern: layer l has window[l % length]."""
    sink_tokens: Annotated[Count, Affects("weights", after_training=True)] = 0
    """Tokens at the beginning of a sequence that stay visible beyond the window, as in StreamingLLM. To them
    a query stands at its place in a cache that holds only these tokens and the window."""
    attention_scale: Annotated[Number, Field(gt=0)] | None = None
    """Factor of the products of queries and keys. null: 1/sqrt(width of a head)."""
    qk_norm: Flag | Literal["across_heads"] = False
    """Whether queries and keys are normalised before their product: each head, or all heads of a token
    together (across_heads, as in OLMo 2)."""
    kv_shift: Flag = False
    """Whether each key and value is a mean of its token's own and that of the token before, before any norm.
    The shares are sigmoid(w x) and the rest, with x the input of the layer and w of each key head, for keys
    and for values."""
    head_norm: Flag = False
    """Whether the output of each head of attention is divided by its root mean square, times a gain of each
    channel, before the output gate."""
    output_gate: Literal["headwise", "elementwise"] | None = None
    """Gate of the output of attention: sigmoid(W x), with x the input of the layer, times the output of each
    head, before their projection. headwise: a number per head; elementwise: one per channel. null: none."""
    logit_scale: Annotated[LogitScale, Affects("weights", after_training=True)] = "none"
    """Scaled attention: a query that sees n keys has its logits multiplied by log n (log_n), by s log n with
    s learned for each head and layer (scalable_softmax), by a function of n that each query chooses
    (adaptive), or by a function of its position (temperature); attention then does not disperse as n grows.
    A name, or a mapping of a name and options."""
    kernel: Annotated[
        Literal["auto", "sdpa", "flex", "reference"], Affects("rounding", after_training=True)
    ] = "auto"
    """Attention kernel that computes the scores; auto chooses by device and encoding."""
    gradient_checkpointing: Annotated[Flag, Affects("rounding", after_training=True)] = False
    """Whether the backward pass recomputes each block instead of keeping its activations: less memory for
    about a third more time."""

    def window_of(self, layer: int) -> int | None:
        """The window of a layer, counted from 0; None where it sees all."""
        return self.window[layer % len(self.window)] if isinstance(self.window, tuple) else self.window


def _by_value(section: str) -> BeforeValidator:
    """Validates a section by the model that its value asks for."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, Section):
            return value
        return section_class(section, value, stored=bool(info.context)).model_validate(value)

    return BeforeValidator(validate)


class CheckpointConfig(Section):
    """The checkpoints that are written."""

    every_n_steps: Annotated[Positive, Affects("results")] = 1000
    """Optimizer steps between two checkpoints."""
    keep_every_n_steps: Annotated[Positive | None, Affects("results")] = None
    """Steps between two checkpoints that are kept besides the last one, as checkpoints/step-N.ckpt, for
    `evaluate RUN --checkpoints all`. null: none."""


class WandbConfig(Section):
    """The place of the run in Weights & Biases."""

    project: Text = "positional-encoding-zoo"
    """Its project."""
    group: Text | None = None
    """The group of runs in the project. null: none."""
    entity: Text | None = None
    """The user or team that the project belongs to. null: the default of the account."""
    tags: tuple[Text, ...] | None = None
    """Labels of the run. null: none."""
    notes: Text | None = None
    """A description of the run. null: none."""


LONGEST_NAME = 200
"""Characters of a run's name. A file system takes names of 255 bytes; a second run of the name is NAME-2."""


class Recipe(Section):
    """A complete training run: the positional encoding, the model around it, the data and the training."""

    name: Annotated[
        Text,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME),
    ]
    """Name of the run, and of its folder. In a file it may be left out: it is then the file's name."""
    # The card records the code of the encodings, and `compare` compares it.
    plugins: Annotated[tuple[Text, ...], Affects(None, after_training=True)] = ()
    """Python files that register further encodings; relative to the recipe's file."""
    seed: Seed = 0
    """Seed of initial weights, order of the data, drawn positions and dropout."""
    init_from: Text | None = None
    """Run folder or checkpoint whose weights the run starts from, relative to the working directory. Shape of
    the model and tokenizer must match; encoding, data, length and optimizer may differ. null: they are drawn
    from the seed."""
    task: Annotated[SerializeAsAny[NamedConfig], _by_value("task")]
    """The task: a name, or a mapping of a name and options. null: by data and model.kind."""
    model: ModelConfig
    """The transformer and its positional encoding."""
    data: Annotated[SerializeAsAny[DataConfig], _by_value("data")]
    """The training data."""
    optimizer: Annotated[SerializeAsAny[OptimizerConfig], _by_value("optimizer")]
    """The optimizer and its schedule."""
    trainer: Annotated[SerializeAsAny[TrainerConfig], _by_value("trainer")]
    """Lightning's Trainer."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """The checkpoints that are written."""
    evaluate: Annotated[
        SerializeAsAny[EvaluateConfig], _by_value("evaluate"), Affects(None, after_training=True)
    ] = EvaluateConfig()
    """The evaluation of the trained model."""
    compile: Annotated[Flag | Literal["auto"], Affects("rounding")] = "auto"
    """Whether the model is compiled by torch.compile. auto: from 5,000 steps on, on a GPU from 1,000, where a
    compiler is installed; the run's recipe holds the choice."""
    logging: Annotated[tuple[Literal["csv", "tensorboard", "wandb", "mlflow"], ...], Affects(None)] = (
        "csv", "tensorboard",
    )  # fmt: skip
    """Loggers. wandb and mlflow must be installed; mlflow writes into the run folder, or to the server of
    MLFLOW_TRACKING_URI."""

    wandb: Annotated[WandbConfig, Affects(None)] = WandbConfig()
    """The place of the run in Weights & Biases."""

    @property
    def tokens_per_step(self) -> int:
        """Tokens of an optimizer step, over all devices."""
        return self.data.batch_size * self.data.sequence_length

    @property
    def validation_interval(self) -> int | float:
        """Optimizer steps between two validations, or a fraction of an epoch."""
        interval = self.trainer.val_check_interval
        # A run shorter than the interval of checkpoints is validated once, at its end.
        return min(self.checkpoint.every_n_steps, self.trainer.max_steps) if interval is None else interval

    def as_dict(self) -> dict[str, Any]:
        """The recipe as mappings, lists, text and numbers; `resolve` makes the same recipe of it."""
        return self.model_dump(mode="json")


def section_class(section: str, value: Any, stored: bool = False) -> type[Section] | None:
    """The model of a section of the recipe with this value; None for a key that is not a section."""
    if section == "trainer":
        given = value if isinstance(value, dict) else {}
        return TrainerConfig if given.keys() <= TrainerConfig.model_fields.keys() else lightning_class()
    if section in BASES:
        return section_model(section, value, stored)
    annotation = Recipe.model_fields[section].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None
