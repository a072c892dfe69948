"""The data of a run as Lightning takes it: each device asks for its own share."""

from __future__ import annotations

import lightning.pytorch as pl

from zoo.data.loader import Loader, ResumableLoader
from zoo.data.source import DataSource


class DataModule(pl.LightningDataModule):
    def __init__(self, source: DataSource):
        super().__init__()
        self.source = source

    def train_dataloader(self) -> ResumableLoader:
        return self.source.train_loader(self.trainer.global_rank, self.trainer.world_size)

    def val_dataloader(self) -> Loader:
        return self.source.valid_loader(self.trainer.global_rank, self.trainer.world_size)
