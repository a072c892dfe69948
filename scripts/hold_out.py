"""Divide a folder of texts: every sixth by name for validation, the others for training.

    python scripts/hold_out.py data/english-novels --out data/novels
    python -m zoo fit --recipe recipes/base/novels.yaml --set model.encoding=fox --set data.root=data/novels

Writes OUT/train and OUT/valid, the folders that `data.name: text` takes for its splits.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="the folder of both splits")
    parser.add_argument("--every", type=int, default=6, metavar="N", help="hold out every Nth (default: 6)")
    options = parser.parse_args(argv)
    files = sorted(options.folder.glob("*.txt"))
    for number, file in enumerate(files, 1):
        split = options.out / ("train" if number % options.every else "valid")
        split.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, split)
    print(f"{len(files)} texts, {len(files) // options.every} of them for validation: {options.out}")


if __name__ == "__main__":
    main()
