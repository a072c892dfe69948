"""Masked language modelling: predict the tokens that are hidden."""

from __future__ import annotations

from torch import Tensor

from zoo.tasks.language_modelling import LanguageModelling, token_losses


class MaskedLanguageModelling(LanguageModelling):
    """Prediction of hidden tokens by an encoder. `targets` are -100 where nothing is asked."""

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        losses = token_losses(self.model(batch["tokens"]), batch["targets"])
        # Divided by what is expected rather than by what this device happened to draw: the mean over devices
        # is then that of the global batch, whatever their number.
        expected = self.recipe.task.mask_fraction * batch["targets"].numel()
        return losses.sum() / expected
