"""Where a run writes, chosen once and never twice.

    recipe.yaml  card.json  checkpoints/  metrics.csv  tensorboard/  tokenizer.json  evaluation/
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import yaml

from zoo.errors import InputError, Problem
from zoo.recipe import Recipe, dump

RUNS = Path("runs")
LAUNCH = "ZOO_LAUNCH"
CLAIM = ".launch"
MAY_CHANGE_ON_RESUME = ("trainer", "evaluate", "checkpoint", "logging", "compile", "plugins", "data.root", "data.cache",
                        "data.workers", "model.kernel")  # fmt: skip


def launch_id() -> str:
    """What the processes of one launch share and no other launch has.

    Lightning starts the processes of further devices by running the same command again, with this process's
    environment; torchrun and SLURM start all at once and name the launch themselves.
    """
    if LAUNCH not in os.environ:
        keys = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_RESTART_COUNT")
        shared = "/".join(os.environ[key] for key in keys if key in os.environ)
        os.environ[LAUNCH] = shared or uuid.uuid4().hex
    return os.environ[LAUNCH]


def new_run(recipe: Recipe, out: Path | None) -> Path:
    """Claim a folder for a new run: `out`, or runs/NAME, or the first of runs/NAME-2, -3 ... that is free.

    Raises:
        InputError: `out` holds a run already, or cannot be written.
    """
    me = launch_id()
    if out is not None:
        if not _claim(out, me):
            raise InputError(
                f"{out} already holds a run, and a run never overwrites another: "
                f"continue it with --resume, or choose another folder with --out"
            )
        return out
    attempt = 1
    while True:
        folder = RUNS / (recipe.name if attempt == 1 else f"{recipe.name}-{attempt}")
        if _claim(folder, me):
            return folder
        attempt += 1


def old_run(recipe: Recipe, out: Path | None) -> Path:
    """The folder of the run to resume: `out`, or the newest of this recipe's name.

    Raises:
        InputError: there is none, or it was made from another recipe.
    """
    if out is not None:
        folder = out
    else:
        candidates = [p for p in RUNS.glob(f"{recipe.name}*") if (p / "recipe.yaml").is_file()]
        candidates = [p for p in candidates if p.name == recipe.name or p.name[len(recipe.name) + 1 :].isdigit()]
        folder = max(candidates, key=lambda p: (p / "recipe.yaml").stat().st_mtime, default=RUNS / recipe.name)
    if not (folder / "recipe.yaml").is_file():
        raise InputError(f"nothing to resume: there is no run in {folder}")
    changed = changed_keys(stored_recipe(folder), recipe.as_dict())
    changed = [c for c in changed if not any(c[0] == key or c[0].startswith(key + ".") for key in MAY_CHANGE_ON_RESUME)]
    if changed:
        raise InputError(
            [
                Problem(f"the run has {old!r}, the recipe now {new!r}; a resumed run keeps its recipe", key=key,
                        where=str(folder / "recipe.yaml"))
                for key, old, new in changed
            ]
        )  # fmt: skip
    os.environ.setdefault(LAUNCH, launch_id())
    return folder


def stored_recipe(folder: Path) -> dict:
    """The resolved recipe in a run folder, as plain data."""
    return yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))


def changed_keys(old: object, new: object, key: str = "") -> list[tuple[str, object, object]]:
    """Every key at which two recipes differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        rows = []
        for part in [*old, *(k for k in new if k not in old)]:
            rows += changed_keys(old.get(part), new.get(part), f"{key}.{part}" if key else str(part))
        return rows
    return [] if old == new else [(key, old, new)]


def write_recipe(folder: Path, recipe: Recipe) -> None:
    write_whole(folder / "recipe.yaml", dump(recipe))


def write_whole(path: Path, text: str) -> None:
    """Write a file that is either the old one or the new one, whatever happens in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _claim(folder: Path, me: str) -> bool:
    """Whether the folder is ours: new or empty, or claimed by a process of this same launch."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        claim = folder / CLAIM
        if any(p.name != CLAIM for p in folder.iterdir()) and not claim.exists():
            return False
        # Exclusive creation lets exactly one launch win, however many start at once.
        with claim.open("x", encoding="utf-8") as file:
            file.write(me)
        return True
    except FileExistsError:
        if not folder.is_dir():
            raise InputError(f"{folder} is a file; a run needs a folder") from None
        return claim.read_text(encoding="utf-8") == me
    except OSError as error:
        raise InputError(f"{folder}: a run cannot be written there: {error.strerror}") from error
