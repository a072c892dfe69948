"""The studies behind the leaderboard, in order: `scripts/studies/NUMBER_NAME.yaml`.

    zoo sweep scripts/studies/[0-9]*.yaml --store scripts/results --list
    zoo sweep scripts/studies/02_flip_flop.yaml --store scripts/results --limit 3 --nice
    zoo compare scripts/results/sort.parquet --force          # the stored entries of a study

ZOO_DATA names the folder of the corpora. By default all is computed in float32 by the study's number of
threads, uncompiled, so that machines with and without bfloat16 give comparable numbers; a study may say
otherwise. The models are too small for several threads, or for a whole GPU: `--jobs` has several entries at
once. While the code is being changed, sweep from a checkout of its own (`git worktree add`) with `--store` in
the first one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pydantic.dataclasses

from zoo.sweep import study as studies
from zoo.sweep.study import Entry as Entry
from zoo.sweep.study import Reading
from zoo.sweep.study import stored_runs as stored_runs

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ROOT / "scripts" / "studies"
OUT = ROOT / "scripts" / "results"


@dataclass(frozen=True)
class Scored:
    """What the score of a task on the leaderboard counts.

    Attributes:
        reading: the name of the reading; empty: the measurements of the study itself.
        measure: empty: `token_accuracy` where answers have several tokens, else `accuracy`.
        lengths: empty: all above the trained one.
    """

    reading: str = ""
    measure: str = ""
    lengths: list[int] = field(default_factory=list)


@pydantic.dataclasses.dataclass(frozen=True, config=studies.STRICT)
class Study(studies.Study):
    """A study with its pages.

    The key `page` of its file has `leaderboard`: whether it has a page and columns in the leaderboard, or
    serves a question. And `scored`: of a task, what its score counts.

    Attributes:
        shown: the reading whose measurements its pages show (see `pages`); None: those of the study itself.
    """

    shown: Reading | None = None

    @property
    def leaderboard(self) -> bool:
        return self.page.get("leaderboard", True)

    @property
    def scored(self) -> Scored:
        return Scored(**self.page.get("scored", {}))

    @property
    def title(self) -> str:
        """The name of its page: that of the study, and of the reading that it shows."""
        return f"{self.name}_{self.shown.name}" if self.shown else self.name

    @property
    def data_shown(self) -> str | None:
        """The parameter `data` of the measurements that it shows."""
        return self.shown.name if self.shown else None

    @property
    def pages(self) -> list[Study]:
        """The study, and once more for each reading: the same entries, showing what that has measured."""
        return [self, *(
            replace(self, lengths=one.lengths, protocols=one.protocols, set=[*self.set, *one.set], shown=one)
            for one in self.readings
        )]  # fmt: skip

    @property
    def is_task(self) -> bool:
        """Whether it has answers that are right or wrong, in place of losses."""
        return self.protocols[0] == "accuracy"


def read_studies(folder: Path) -> list[Study]:
    """The studies of a folder in the order of their numbers."""
    return [studies.read_study(file, Study)[0] for file in sorted(folder.glob("[0-9]*.yaml"))]
