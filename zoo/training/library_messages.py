"""Messages of the libraries that the user of a command cannot use: hidden by name, and nothing else."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

HIDDEN_LINES = (
    "GPU available:",
    "TPU available:",
    "HPU available:",
    "💡 Tip:",
    # Which precision matrices are multiplied in is the recipe's choice.
    "You are using a CUDA device",
    # MLflow's first run in a folder.
    "Experiment with name positional-encoding-zoo not found",
    "`Trainer.fit` stopped:",
    "Using default `ModelCheckpoint`",
    "Restoring states from the checkpoint path",
    "Restored all states from the checkpoint",
    "Initializing distributed:",
    "------------------",
    "distributed_backend=",
    "All distributed processes registered",
    "`Trainer(val_check_interval",
    "Using 16bit Automatic Mixed Precision",
    "Using bfloat16 Automatic Mixed Precision",
    # The zoo prints the step of an interrupted run itself.
    "Detected KeyboardInterrupt",
)
HIDDEN_WARNINGS = (
    r".*LeafSpec.* is deprecated",
    # Reading blocks from a memory map costs well under a step; workers are the recipe's choice.
    r".*does not have many workers which may be a bottleneck",
    # A resumed run continues in its own folder.
    r"Checkpoint directory .* exists and is not empty",
    # The recipe, not the number of logged steps, decides how often to log.
    r"The number of training batches .* is smaller than the logging interval",
    r".*Found \d+ module\(s\) in eval mode at the start of training",
    r".*you may want to consider using a DistributedSampler",
    r"`isinstance\(treespec, LeafSpec\)`",
    # Of what has a state in a checkpoint only trainer.max_time may be gone when it is resumed.
    r"Be aware that when using `ckpt_path`, callbacks used to create the checkpoint need to be provided",
    # The login node of a cluster has it too, and a run there may be meant to be one process.
    r".*The `srun` command is available on your system but is not used",
)


def hide_library_messages() -> None:
    """Hide Lightning's adverts and the notes that the zoo answers for."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(("lightning", "lightning_fabric", "lightning_utilities")):
            logging.getLogger(name).addFilter(_is_of_use)
    for message in HIDDEN_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    _hide_second_report_of_dead_workers()


def _is_of_use(record: logging.LogRecord) -> bool:
    text = record.getMessage().strip()
    return bool(text) and not text.startswith(HIDDEN_LINES)


def _hide_second_report_of_dead_workers() -> None:
    """The death of a data worker is raised where its batch is missing. Torch raises it from its handler of
    SIGCHLD too, wherever that runs: within a `__del__` or a hook of a fork Python prints it, and if another
    iterator was being made, the `__del__` of that misses what it did not get."""
    shown = sys.unraisablehook
    if getattr(shown, "hides_dead_workers", False):
        return

    hidden = {
        RuntimeError: "DataLoader worker",
        AttributeError: "'_MultiProcessingDataLoaderIter' object",
    }

    def show(what: Any) -> None:
        beginning = hidden.get(what.exc_type)
        if beginning is None or not str(what.exc_value).startswith(beginning):
            shown(what)

    show.hides_dead_workers = True
    sys.unraisablehook = show
