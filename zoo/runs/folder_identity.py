"""Whether a run's folder is still there while a process writes in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import RunError


@dataclass(frozen=True)
class FolderIdentity:
    """A run folder, and what the file system knows it by: another one of its name is not this run's.

    What writes into a run makes the folders that it needs, so that a removed one would come back with a few
    files in it; they ask this before.
    """

    folder: Path
    identity: tuple[int, int]

    @classmethod
    def of(cls, folder: Path) -> FolderIdentity:
        return cls(folder, _identity(folder))

    def is_gone(self) -> bool:
        """Whether the folder was removed or moved, or another has its name."""
        try:
            return _identity(self.folder) != self.identity
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # a network file system that does not answer for now: the next write will fail

    def lost(self, when: str) -> RunError:
        """What ends a process whose folder is gone; `when` that was, in words."""
        return RunError(
            f"{self.folder}: the run folder was removed or moved {when}, so nothing more can be saved; what was "
            f"saved was in it"
        )


def _identity(folder: Path) -> tuple[int, int]:
    found = os.stat(folder)
    return found.st_dev, found.st_ino
