"""The section `trainer` of a recipe: Lightning's Trainer.

Lightning's own keywords are checked against the signature of its Trainer.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, create_model, model_serializer

from zoo.recipe.fields import (
    Affects,
    Count,
    CountOrFraction,
    Exact,
    Int,
    Number,
    Positive,
    Section,
    Text,
    strict_type,
)
from zoo.registry import Option, keywords_of

PRECISION_ALIASES = {
    64: "64-true", 32: "32-true", 16: "16-mixed",
    "64": "64-true", "32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed",
}  # fmt: skip


def _precision(value: object) -> object:
    # One spelling each, so that two recipes that mean the same also compare equal.
    return PRECISION_ALIASES.get(value, value) if isinstance(value, int | str) else value


class TrainerConfig(Section):
    """Lightning's Trainer: these, and any other keyword of `lightning.pytorch.Trainer`."""

    max_steps: Positive
    """Optimizer steps of the run."""
    accelerator: Annotated[
        Literal["auto", "cpu", "gpu", "cuda", "mps", "tpu", "hpu"], Affects("rounding", after_training=True)
    ] = "auto"
    """Kind of device."""
    devices: Annotated[Int | list[Count] | Text, Affects("rounding")] = 1
    """Number of devices per node, a list of their indices, -1 for all, or auto."""
    num_nodes: Annotated[Positive, Affects("rounding")] = 1
    """Number of machines."""
    strategy: Annotated[
        Literal["auto", "ddp", "ddp_find_unused_parameters_true", "fsdp"], Affects("rounding")
    ] = "auto"
    """Division of the batch among devices: ddp, each with the whole model, or fsdp, each with its share of
    the weights, gradients and moments. auto: ddp on several devices."""
    context_parallel: Annotated[Positive, Affects("rounding")] = 1
    """Devices that compute each sequence together, each some of its tokens. It divides devices times
    num_nodes; with ddp, without compile and gradient_checkpointing."""
    precision: Annotated[
        Literal[
            "auto", "32-true", "64-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true",
            "transformer-engine", "transformer-engine-float16",
        ],
        BeforeValidator(_precision),
    ] = "auto"  # fmt: skip
    """Number format of weights and arithmetic. auto: bf16-mixed where the device multiplies bf16 natively and
    d_model is 64 or more, else 32-true; the run's recipe holds the choice."""
    gradient_clip_val: Annotated[Number, Field(ge=0)] | None = 1.0
    """Largest norm of the gradient. null: no clipping."""
    accumulate_grad_batches: Annotated[Positive, Affects("rounding")] = 1
    """Batches whose gradients are summed for one optimizer step; batch_size is shared out over them."""
    val_check_interval: Annotated[CountOrFraction | None, Affects("results")] = None
    """Optimizer steps between two validations, or a fraction of an epoch. null: as often as checkpoints."""
    limit_val_batches: Annotated[
        Annotated[Exact, Field(ge=0)] | Annotated[Number, Field(ge=0, le=1)] | None, Affects("results")
    ] = None
    """Validation batches (of batch_size) per validation, or a fraction of all. null: all, up to two
    million tokens (2^21); 1.0: all of any text."""
    log_every_n_steps: Annotated[Positive, Affects(None)] = 50
    """Optimizer steps between two lines of the log."""

    def flags(self) -> dict[str, Any]:
        """The keywords for `lightning.pytorch.Trainer`, as plain values."""
        return self.model_dump(mode="json", exclude={"context_parallel"})

    @model_serializer(mode="wrap")
    def _dump(self, all_fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without those of Lightning's own keywords that are not given."""
        given = TrainerConfig.model_fields.keys() | self.model_fields_set
        return {key: value for key, value in all_fields(self).items() if key in given}


LIGHTNING_FLAGS: dict[str, Affects] = {
    # Used once it is trained, on its last checkpoint.
    "limit_test_batches": Affects(None),
    "limit_predict_batches": Affects(None),
    "enable_progress_bar": Affects(None),
    "enable_model_summary": Affects(None),
    "enable_autolog_hparams": Affects(None),
    "profiler": Affects(None),
    # Raises where a gradient is not finite; every gradient is computed as without it.
    "detect_anomaly": Affects(None),
    # How validation keeps tensors. Every training step is seeded by its number.
    "inference_mode": Affects(None),
    "num_sanity_val_steps": Affects(None),
    # Where a run stops for now: it is unfinished then, and can be resumed.
    "max_time": Affects(None),
    "check_val_every_n_epoch": Affects("results"),
    "deterministic": Affects("rounding"),
    "benchmark": Affects("rounding"),
}
"""The other keywords of Lightning's Trainer that may differ; any that is not here decides the weights."""

OWNED = {
    "logger": "the loggers are named under `logging`",
    "callbacks": "the zoo brings its own callbacks; checkpoints are set under `checkpoint`",
    "plugins": "encodings of your own go under the top-level `plugins`; Lightning's plugins are the zoo's",
    "default_root_dir": "the run folder is chosen by `fit --out DIR`",
    "max_epochs": "the length of a run is counted in steps; set `trainer.max_steps`",
    "use_distributed_sampler": "the zoo itself shares the data out over the devices",
    "reload_dataloaders_every_n_epochs": "resuming at the next batch needs loaders that stay the same",
    "enable_checkpointing": "a run always keeps checkpoints; set `checkpoint.every_n_steps`",
    "fast_dev_run": "it makes no run folder; set `trainer.max_steps` to a few steps",
    "barebones": "it makes no run folder; set `trainer.enable_progress_bar: false` for a quiet run",
    "model_registry": "it uploads checkpoints; a run writes into its folder and nowhere else",
    "overfit_batches": "it replaces the order of the data; take a smaller text",
    "limit_train_batches": "the length of a run is counted in steps; set `trainer.max_steps`",
}


@functools.cache
def lightning_class() -> type[TrainerConfig]:
    """TrainerConfig with every keyword of Lightning's Trainer, except those in `OWNED`."""
    own = {*TrainerConfig.model_fields, *OWNED}
    fields = {
        key: (strict_type(o.annotation), None) for key, o in trainer_options().items() if key not in own
    }
    return create_model("TrainerConfig", __base__=TrainerConfig, __module__=__name__, **fields)


@functools.cache
def trainer_options() -> dict[str, Option]:
    """The keywords of `lightning.pytorch.Trainer`, by name."""
    from lightning.pytorch import Trainer

    return {option.name: option for option in keywords_of(Trainer)}
