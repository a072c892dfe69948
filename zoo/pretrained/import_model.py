"""Making a run of a published model: its weights, under the zoo's names, with all that a run folder has."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from zoo.console import progress_bar
from zoo.data.text.tokenizer import open_tokenizer
from zoo.errors import InputError, Problem, first_line
from zoo.files import atomic_file, atomic_folder, file_sha256, read_json
from zoo.pretrained.architecture import Architecture, PublishedConfig
from zoo.pretrained.architectures import architecture_of
from zoo.pretrained.config import Config
from zoo.recipe import Recipe, resolve
from zoo.runs.card import make_card, write_card
from zoo.runs.folder import CARD, LAST, RUNS, validate_free, write_recipe
from zoo.tasks import build_task
from zoo.tasks.task import Task

CONFIG, GENERATION_CONFIG, TOKENIZER = "config.json", "generation_config.json", "tokenizer.json"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PUBLISHED = "published"
"""The folder in a run with the files of its origin that `export` gives to other tools again."""
GIVEN_AGAIN = (
    CONFIG, GENERATION_CONFIG, "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
)  # fmt: skip
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
MANY = 6  # names in a message


@dataclass(frozen=True)
class Published:
    """A folder in Hugging Face's format, whose configuration was understood.

    Attributes:
        origin: the path or the id that was given.
        name: of its architecture.
        files: the file of each weight.
    """

    folder: Path
    origin: str
    name: str
    architecture: Architecture
    config: PublishedConfig
    files: dict[str, Path]


def read_published(origin: str, ignored: Collection[str] = ()) -> Published:
    """Find a model, and understand its configuration and which weights there are.

    Raises:
        InputError: not there, not in this format, or with a key that is not known.
    """
    folder = Path(origin) if Path(origin).is_dir() else _download(origin)
    file = folder / CONFIG
    if not file.is_file():
        own = "; an export of zoo itself needs no import: evaluate it" if (folder / CARD).is_file() else ""
        message = f"no {CONFIG}: not a model in Hugging Face's format{own}"
        raise InputError(Problem(message, where=str(folder)))
    values = read_json(file)
    if not isinstance(values, dict):
        raise InputError(Problem("not a mapping", where=str(file)))
    name, architecture = architecture_of(values, str(file))
    config = Config(values, str(file), architecture.defaults, ignored)
    if values.get("quantization_config"):
        config.problem("quantization_config", "quantized weights cannot be imported")
        config.taken.add("quantization_config")
    content = architecture.read(config)
    config.check()
    return Published(folder, origin, name, architecture, content, _weight_files(folder))


def _download(origin: str) -> Path:
    """The folder of a model of the hub, fetched or fetched before."""
    if not HUB_ID.fullmatch(origin):
        raise InputError(Problem("no such folder, and no id of the hub (OWNER/NAME)", where=origin))
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(origin, allow_patterns=["*.json", "*.jinja", "*.safetensors"]))
    except Exception as error:  # of the hub, of the network, of files: many kinds
        message = f"no such folder, and it could not be fetched from the hub: {first_line(error)}"
        raise InputError(Problem(message, where=origin)) from error


def _weight_files(folder: Path) -> dict[str, Path]:
    """The file of each weight, by the name that it has there."""
    if (index := folder / INDEX).is_file():
        table = read_json(index).get("weight_map")
        if not isinstance(table, dict):
            raise InputError(Problem("has no weight_map", where=str(index)))
        names = sorted(set(table.values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise InputError(Problem(f"{name} is not there", where=str(index)) for name in missing)
        files = [folder / name for name in names]
    elif (single := folder / SINGLE).is_file():
        files = [single]
    else:
        pickled = next(folder.glob("*.bin"), None)
        why = f"; {pickled.name} is not read, since reading it could run code" if pickled else ""
        raise InputError(Problem(f"no {SINGLE} and no {INDEX}{why}", where=str(folder)))
    found: dict[str, Path] = {}
    for file in files:
        try:
            with safe_open(file, "np") as opened:
                found |= dict.fromkeys(opened.keys(), file)
        except SafetensorError as error:
            message = f"damaged: safetensors cannot read it ({error})"
            raise InputError(Problem(message, where=str(file))) from error
    return found


def import_model(
    published: Published, name: str | None = None, sets: Sequence[str] = (), out: Path | None = None
) -> Path:
    """Make a run folder of a pretrained model, complete or not at all.

    Args:
        published: from `read_published`.
        name: of the run; by default the last part of where it comes from.
        sets: `key=value` changes to the recipe: the evaluation data.
        out: the run folder; by default runs/NAME.

    Returns: the run folder.

    Raises:
        InputError: weights or a tokenizer that do not fit the configuration, a change of the model, or a run
            of this name.
        OSError: it does not fit.
    """
    last = published.origin.rstrip("/").split("/")[-1]
    name = name or re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-._") or "imported"
    folder = out or RUNS / name
    validate_free(folder)
    changes = [one for one in sets if one.startswith("model")]
    if changes:
        advice = "a model is imported as it was trained; `evaluate --set` changes what may be changed"
        raise InputError(Problem(advice, key=one.partition("=")[0]) for one in changes)
    tokenizer = open_tokenizer(str(published.folder))
    if (rows := published.config.vocab_size) < tokenizer.vocab_size:
        fault = f"{rows} rows of the embedding, but {tokenizer.vocab_size} token ids in {TOKENIZER}"
        message = f"{fault}; remove the tokens from id {rows} on, or resize the embedding"
        raise InputError(Problem(message, key="vocab_size", where=str(published.folder / CONFIG)))
    try:
        recipe = recipe_of(published, name, folder / TOKENIZER, sets)
        task = build_task(recipe, rows)
    except InputError as error:
        raise InputError(_in_config(one, published) for one in error.problems) from error
    load_weights(task, published)
    card = make_card(recipe, task.model, {"tokenizer": tokenizer.fingerprint}) | _origin(published)
    card["imported"]["start_token"] = tokenizer.start_token
    if tokenizer.end_token is None:
        print("note: no token closes a document; documents are joined without a separator", file=sys.stderr)
    content = {
        "hyper_parameters": task.settings,
        "state_dict": task.state_dict(), "global_step": 0, "zoo_card": card,
    }  # fmt: skip
    with atomic_folder(folder) as made:
        (made / LAST).parent.mkdir()
        with atomic_file(made / LAST) as file:
            torch.save(content, file)
        shutil.copyfile(published.folder / TOKENIZER, made / TOKENIZER)
        (made / PUBLISHED).mkdir()
        for file in filter(Path.is_file, map(published.folder.joinpath, GIVEN_AGAIN)):
            shutil.copyfile(file, made / PUBLISHED / file.name)
        tokenizer.save_end(made)
        write_recipe(made, recipe)
        write_card(made, card)
    return folder


def _in_config(problem: Problem, published: Published) -> Problem:
    """A problem of the recipe, at the key of the configuration that it comes from."""
    names = {f"model.{ours}": theirs[0] for ours, theirs in published.architecture.names.items()}
    names["data.sequence_length"] = published.architecture.length[0]
    key = problem.key or "model.encoding"
    if problem.where or not key.startswith(("model.", *names)):
        return problem  # of a change by the user
    return replace(problem, key=names.get(key, key), where=str(published.folder / CONFIG))


def load_weights(task: Task, published: Published) -> None:
    """Copy the weights of a published model into a task in float32, one at a time.

    Raises:
        InputError: some are missing, left over, of another shape, or there twice with two contents.
    """
    own, there, architecture = task.state_dict(), _renamed(published), published.architecture
    names, model = {name.removeprefix("model.") for name in own}, task.recipe.as_dict()["model"]
    rows, copies = list(architecture.rows(model, names)), architecture.copies(model)
    wanted = {name for row in rows for name in row.theirs}
    problems = [f"{name} is missing" for name in sorted(wanted - there.keys())]
    problems += [
        f"{name} has no place in the model"
        for name in sorted(there.keys() - wanted - copies.keys())
        if not name.endswith(architecture.buffers)
    ]
    problems += [
        f"{name} differs from {first}, which the configuration uses for both: remove it, or set "
        "tie_word_embeddings to false for an output layer of its own"
        for name, first in copies.items()
        if {name, first} <= there.keys()
        and not torch.equal(_read_tensor(*there[name]), _read_tensor(*there[first]))
    ]
    with progress_bar(len(rows), "weights", "weight") as bar:
        for row in () if problems else rows:
            target = own[f"model.{row.ours}"]
            parts = [_read_tensor(*there[name]) for name in row.theirs]
            parts[1:] = [part[:1] for part in parts[1:]] if row.adds_row else parts[1:]
            shapes = [list(part.shape) for part in parts]
            expected = [list(part.shape) for part in row.split(target)]
            if shapes == expected:
                target.copy_(row.join(parts))
            else:
                problems.append(f"{', '.join(row.theirs)}: shapes {shapes} and not {expected}")
            bar.update()
    if problems:
        more = [f"and {len(problems) - MANY} more"] if len(problems) > MANY else []
        text = f"its weights do not fit its configuration: {'; '.join([*problems[:MANY], *more])}"
        raise InputError(Problem(text, where=str(published.folder)))
    task.restore(own, published.folder)


def _read_tensor(file: Path, name: str) -> Tensor:
    with safe_open(file, "pt") as opened:
        return opened.get_tensor(name).float()


def recipe_of(published: Published, name: str, tokenizer: Path, sets: Sequence[str] = ()) -> Recipe:
    """The recipe of an imported model: WikiText-2 in its own tokens, unless `sets` say otherwise."""
    length, kind = published.config.length, published.config.model["kind"]
    return resolve(
        {
            "name": name,
            "task": "language_modelling" if kind == "decoder" else "masked_language_modelling",
            "model": published.config.model,
            "data": {
                "name": "wikitext-2", "sequence_length": length, "batch_size": 1, "tokenizer": str(tokenizer),
            },
            "optimizer": {"lr": 1e-5},
            "trainer": {"max_steps": 1000, "precision": "32-true"},
            "compile": False,
        },
        sets,
    )  # fmt: skip


def _origin(published: Published) -> dict[str, Any]:
    """The origin of the model, for the card; null where it is unknown."""
    files = sorted({CONFIG, TOKENIZER, *(file.name for file in published.files.values())})
    digests = {name: file_sha256(published.folder / name) for name in files}
    imported = {"from": published.origin, "architecture": published.name, "sha256": digests}
    return {"imported": imported, "tokens_seen": None, "seed": None, "data": None, "finished": True}


def _renamed(published: Published) -> dict[str, tuple[Path, str]]:
    """The file and the name there of each weight, by its name with the prefix of the architecture.

    A wrapper of the model that was saved with it (`_orig_mod.`, `module.`, `language_model.`) is left out.
    """
    prefix, tokens = published.architecture.prefix, published.architecture.outside["tokens.weight"]
    last = tokens.removeprefix(prefix)
    before = min((name.removesuffix(last) for name in published.files if name.endswith(last)), default=prefix)
    wrapper = before.removesuffix(prefix)
    begin = "" if before.endswith(prefix) else prefix
    named = {begin + name.removeprefix(wrapper): (file, name) for name, file in published.files.items()}
    # Norms of the first BERT are still called as in TensorFlow.
    older = ("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")
    return {name.replace(*older[0]).replace(*older[1]): file for name, file in named.items()}
