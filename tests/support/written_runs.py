"""Run folders that were never trained: recipe, card, measurements and log, written as a run writes them."""

import copy
import csv
import json
import shutil

import pytest
import yaml
from known_units import HARD, TOKENS
from measured import rows_with_units, store_rows
from tiny_recipes import tiny_mapping

from zoo.evaluation.interval import interval_of_ratio
from zoo.evaluation.store import MEASUREMENTS, read_measurements
from zoo.recipe import resolve
from zoo.recipe.encoding import encoding_label

RECIPE = tiny_mapping({"name": "sample", "sequence_length": 16, "vocab_size": 300}, trainer={"max_steps": 6})
BYTES_PER_TOKEN = 3.0
LN2 = 0.6931471805599453


def set_at(mapping, dotted, value):
    *sections, last = dotted.split(".")
    for section in sections:
        mapping[section] = mapping.get(section) or {}
        mapping = mapping[section]
    mapping[last] = value


@pytest.fixture
def row_of():
    """A row as `evaluate` stores it: `row_of(recipe, 32, 1.5)`; `value` in bits per byte, or a note."""

    def row_of(recipe, length, value, protocol="nonoverlapping", parameters=None, **more):
        row = {
            "run": recipe["name"], "encoding": encoding_label(recipe["model"]["encoding"]),
            "checkpoint": "checkpoints/last.ckpt", "step": recipe["trainer"]["max_steps"],
            "seed": recipe["seed"], "protocol": protocol, "parameters": parameters or {}, "length": length,
            "train_length": recipe["data"]["sequence_length"],
        }  # fmt: skip
        if isinstance(value, str):
            return row | {"note": value} | more
        row |= {
            "documents": 7, "tokens": 256, "loss_nats": value and value * LN2 * BYTES_PER_TOKEN,
            "bits_per_byte": value,
            "targets": "abcdef012345", "tokens_per_second": 1000.0 + length, "peak_memory_mb": 100.0 + length,
        }  # fmt: skip
        units = units_of(row)
        low, high = (
            interval_of_ratio([n / LN2 for n in units["nats"]], units["bytes"]) if value else (None, None)
        )
        row |= {"bits_per_byte_low": low, "bits_per_byte_high": high} | more
        return row | ({} if row.get("targets") is None else {"units": units_of(row)})

    return row_of


def units_of(row):
    """Documents, or examples, that come to what a row says; of all rows the same ones."""
    if "accuracy" in row:
        count = row.get("examples", 100)
        right = round(count * row["accuracy"])
        return {"scores": [1] * right + [0] * (count - right)}
    if row["loss_nats"] is None:
        return {"documents": [0, 1], "nats": [None, 1.0], "tokens": [128, 128], "bytes": [384, 384]}
    # Some are harder, by as much as others are easier.
    nats = [tokens * row["loss_nats"] * hard for tokens, hard in zip(TOKENS, HARD, strict=True)]
    sizes = [tokens * BYTES_PER_TOKEN for tokens in TOKENS]
    return {
        "documents": [*range(len(TOKENS))],
        "nats": nats,
        "tokens": TOKENS,
        "bytes": [int(size) for size in sizes],
    }


@pytest.fixture
def write_run(tmp_path, monkeypatch, row_of):
    """Write a run folder and give its path: `write_run("a", "rope", seed=1, values={16: 1.5})`.

    Args:
        values: bits per byte by length; a text is the note of a length that could not be measured.
        recipe, card: values by dotted key that differ from those of every other run.
        rows: a function that makes further rows, of the recipe; or the rows instead.
        speeds: the tokens per second of the log.
    """
    monkeypatch.chdir(tmp_path)

    def write_run(
        name, encoding="alibi", seed=0, values=None, recipe=None, card=None, rows=None, speeds=(90, 200, 100)
    ):
        plain = copy.deepcopy(RECIPE) | {"name": name, "seed": seed}
        plain["model"]["encoding"] = encoding
        for key, value in (recipe or {}).items():
            set_at(plain, key, value)
        resolved = resolve(plain).as_dict()
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text(yaml.safe_dump(resolved, sort_keys=False))
        steps = resolved["trainer"]["max_steps"]
        card_json = {
            "name": name, "encoding": encoding_label(resolved["model"]["encoding"]), "code_source": [],
            "task": "language_modelling", "data": resolved["data"]["name"],
            "fingerprint": {"corpus": "c" * 64, "tokenizer": "d" * 64}, "train_length": 16, "seed": seed,
            "init_from": None, "steps": steps, "tokens_seen": steps * 64, "finished": True,
            "parameters": {"positional": 0, "other": 1000, "total": 1000},
            "versions": {"python": "3.11.7", "torch": "2.13.0"}, "git_commit": "e" * 40,
        }  # fmt: skip
        for key, value in (card or {}).items():
            set_at(card_json, key, value)
        (folder / "card.json").write_text(json.dumps(card_json))
        measured = [
            row_of(resolved, length, value) for length, value in (values or {16: 1.5, 32: 1.6}).items()
        ]
        if callable(rows):
            measured += rows(resolved)
        measured = measured if rows != [] else []
        store_rows(folder, measured)
        with (folder / "metrics.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["step", "train/loss", "train/tokens_per_second", "val/loss"])
            writer.writerows([step, 1.0, speed, ""] for step, speed in enumerate(speeds))
            writer.writerow([len(speeds), "", "", 1.0])
        return folder.relative_to(tmp_path)

    return write_run


@pytest.fixture
def edit_rows():
    """Change the flat rows of a run: `edit_rows(run, lambda rows: rows[:1])`."""

    def edit_rows(run, change):
        rows = rows_with_units(read_measurements(run))
        shutil.rmtree(run / MEASUREMENTS)
        store_rows(run, change(rows))

    return edit_rows


@pytest.fixture
def edit():
    """Change a JSON file of a run in place: `edit(run / "card.json", lambda card: card | {"steps": 3})`."""

    def edit(file, change):
        file.write_text(json.dumps(change(json.loads(file.read_text()))))

    return edit
