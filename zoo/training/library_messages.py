"""Hide the adverts and hints of Lightning and torch."""

from __future__ import annotations

import logging
import warnings


def hide_library_messages() -> None:
    """Show warnings and errors of Lightning and torch, but no adverts and no hints on settings."""
    from lightning.fabric.utilities.warnings import PossibleUserWarning

    for name in ("lightning.pytorch", "lightning.fabric", "lightning_utilities", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", category=PossibleUserWarning)
    warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated")
