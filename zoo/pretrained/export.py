"""Giving a trained model to other tools: a folder that `zoo.load` or `transformers` reads.

--format safetensors   model.safetensors  recipe.yaml  card.json  tokenizer.json  README.md
--format hf            config.json  generation_config.json  model.safetensors  tokenizer.json
                       tokenizer_config.json  zoo_recipe.yaml  card.json  README.md, and modeling_zoo.py where
                       `transformers` has no such architecture

Both have lengths.csv and lengths.png of a run that was evaluated.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from zoo.data.text.tokenizer import CHARACTERS, TextTokenizer
from zoo.data.text.tokenizer import CONFIG as TOKENIZER_CONFIG
from zoo.errors import InputError, Problem, collect
from zoo.evaluation.store import read_measurements
from zoo.files import atomic_folder, atomic_write, read_json
from zoo.models.transformer import Decoder
from zoo.pretrained.import_model import CONFIG, GENERATION_CONFIG, PUBLISHED, TOKENIZER
from zoo.pretrained.model_card import PACKAGE, Exported, model_card
from zoo.pretrained.options import OLDER
from zoo.recipe import dump
from zoo.recipe.encoding import encodings_in
from zoo.runs.card import write_card
from zoo.runs.checkpoint_file import write_safetensors
from zoo.runs.code_source import encoding_sources, packages
from zoo.runs.folder import EXPORTED, RESULTS, validate_present, write_recipe
from zoo.runs.load import load_run
from zoo.tasks.language_modelling import start_token
from zoo.tasks.task import Task

TRAINED_BY = "zoo_recipe.yaml"
"""The recipe beside a model in the format of `transformers`, which the zoo does not take for a run."""
CLOSE, MOST_LOGITS = 1e-4, 1 << 26
"""Bound on the distance of logits from the run's, relative to the largest, and how many are compared."""
READ_BY_4 = "transformers 4.57 and later, and tools that know the keys of version 4"
READ_BY_5 = "transformers 5 and later"
MODELLING = '''\
"""The model of this folder, for `transformers`: `from_pretrained(FOLDER, trust_remote_code=True)`."""

try:
    from zoo.pretrained.modelling import ZooConfig, ZooForCausalLM
{modules}except ImportError as error:
    raise ImportError("this model needs its packages: pip install {packages}") from error
{plugins}
__all__ = ["ZooConfig", "ZooForCausalLM"]
'''


def export(path: Path, out: Path, form: str, sets: Sequence[str] = ()) -> Exported:
    """Write the model of a run or a checkpoint into a new folder, whole or not at all.

    Args:
        path: a run folder (its last checkpoint is taken) or a checkpoint.
        out: the folder; it is made, or empty.
        form: `hf` or `safetensors`.
        sets: `key=value` changes that leave its weights as they are, such as another scaling of RoPE.

    Returns: the result; `hf` was read back and compared with the model of the run.

    Raises:
        InputError: no usable run, a folder that holds something, a model that the format cannot hold, or
            `transformers` is not installed.
    """
    problems: list[Problem] = []
    with collect(problems):
        validate_present([path])
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        fault = "is not empty" if out.is_dir() else "is a file"
        problems.append(Problem(f"{fault}; choose another folder with --out", where=str(out)))
    if form == "hf" and find_spec("transformers") is None:
        install = "pip install 'transformers>=5'"
        problems.append(Problem(f"--format hf needs transformers: {install}; --format safetensors does not"))
    if problems:
        raise InputError(problems)
    loaded = load_run(path, sets)
    task, run = loaded.task, loaded.folder
    # Changes after training belong to the exported model.
    card = {**task.card} | ({"changed_after_training": task.changed} if task.changed else {})
    if form == "hf":
        _validate_for_hf(task, path)
    with atomic_folder(out) as folder:
        for file in filter(Path.is_file, (run / TOKENIZER, run / TOKENIZER_CONFIG)):
            shutil.copyfile(file, folder / file.name)
        if form == "hf":
            exported = _write_hf(task, folder, out, run / PUBLISHED)
            atomic_write(folder / TRAINED_BY, dump(task.recipe))
        else:
            if (run / PUBLISHED).is_dir():
                shutil.copytree(run / PUBLISHED, folder / PUBLISHED)
            write_safetensors(folder / EXPORTED, checkpoint_content(task, card), dict(task.state_dict()))
            write_recipe(folder, task.recipe)
            exported = Exported(f'zoo.load("{out}")')
        write_card(folder, card)
        curves = (run / RESULTS).with_suffix(".md")
        table = curves.read_text(encoding="utf-8") if curves.is_file() else None
        if table is not None:
            beside = [curves.with_suffix(suffix) for suffix in (".csv", ".png")]
            for file in (file for file in beside if file.is_file()):
                shutil.copyfile(file, folder / file.name)
            picture = f"![Loss by length]({beside[1].name})\n\n"
            table = picture * beside[1].is_file() + table
        measured = [one for one in read_measurements(run) if one.step == card.get("steps")]
        own = [one for one in measured if one.changed == task.changed]
        text = model_card(task.recipe.as_dict(), card, table, exported, own)
        atomic_write(folder / "README.md", text)
    return exported


def checkpoint_content(task: Task, card: dict[str, Any]) -> dict[str, Any]:
    """The content of a checkpoint without its weights, as `read_checkpoint` gives it."""
    content = {"hyper_parameters": task.settings, "global_step": card.get("steps") or 0}
    return content | ({"zoo_card": card} if card else {})


def _validate_for_hf(task: Task, path: Path) -> None:
    """Raises InputError for a model that `transformers` has no language model for."""
    from zoo.pretrained.architectures import architecture_for

    architecture, why = architecture_for(_section(task))
    if task.model.pointer:
        why = "a model that points at positions"
    if task.model.pointer or (architecture is None and not isinstance(task.model, Decoder)):
        message = f"`transformers` has no such language model ({why}): use --format safetensors"
        raise InputError(Problem(message, where=str(path)))
    wrong = [Path(one).name for one in task.recipe.plugins if not Path(one).stem.isidentifier()]
    if wrong:
        raise InputError(f"{', '.join(wrong)} cannot be imported with the model: use the name of a module")


def _section(task: Task) -> dict[str, Any]:
    """The section `model`, with the width that its recipe leaves to the model's own rule."""
    feed_forward = task.model.blocks[0].feed_forward
    return task.recipe.as_dict()["model"] | {"d_ff": feed_forward.down.in_features}


def _write_hf(task: Task, folder: Path, out: Path, published: Path) -> Exported:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    from zoo.pretrained.architectures import architecture_for
    from zoo.pretrained.modelling import ZooConfig, ZooForCausalLM

    section, vocab_size = _section(task), task.vocab_size
    length = task.recipe.data.sequence_length
    causal = isinstance(task.model, Decoder)
    auto = AutoModelForCausalLM if causal else AutoModelForMaskedLM
    special: dict[str, Any] = {}
    older: dict[str, Any] = {}
    if published.is_dir():  # an imported model keeps its special tokens and its options of generation
        shutil.copytree(published, folder, dirs_exist_ok=True)
        given = AutoConfig.from_pretrained(published).to_dict()
        special = {key: value for key, value in given.items() if key.endswith("_token_id")}
    if not (published / TOKENIZER_CONFIG).is_file():
        special = _write_tokenizer(task, folder) | special
    architecture, why = architecture_for(section)
    if architecture is None:
        use_cache = task.model.encoding.max_cached_length is None
        config = ZooConfig(section, vocab_size, length, use_cache, **special)
        config.architectures = [ZooForCausalLM.__name__]
        names = {"AutoConfig": ZooConfig, "AutoModelForCausalLM": ZooForCausalLM}
        config.auto_map = {name: f"modeling_zoo.{cls.__name__}" for name, cls in names.items()}
        _write_modelling(folder, task)
        weights, loader = dict(task.state_dict()), ZooForCausalLM
    else:
        written = architecture.write(section, length)
        if published.is_dir() and not any(key.startswith("model.encoding") for key in task.changed):
            # An unchanged model keeps its length.
            written |= {key: given[key] for key in architecture.length if key in written and key in given}
        older = {key: written.pop(key) for key in OLDER if key in written}
        config = AutoConfig.for_model(architecture.model_type, vocab_size=vocab_size, **special, **written)
        own = {name.removeprefix("model."): value for name, value in dict(task.state_dict()).items()}
        weights, loader = dict(architecture.weights(own, section)), auto
        config.architectures = [auto._model_mapping[type(config)].__name__]
    config.dtype = "float32"
    config.save_pretrained(folder)
    _write_for_older(folder, older)
    # Weights of the zoo's own names are a checkpoint of the zoo too.
    beside = checkpoint_content(task, task.card) if architecture is None else {}
    write_safetensors(folder / EXPORTED, beside, weights)
    difference = _difference(task, loader, folder, length, vocab_size)
    file = folder / GENERATION_CONFIG
    if causal:
        options = read_json(file) if file.is_file() else special
        options |= {} if config.use_cache else {"use_cache": False}
        atomic_write(file, json.dumps(options, indent=2))  # `transformers` refuses to save some that it reads
    trust = ", trust_remote_code=True" if architecture is None else ""
    loaded_by = f'{auto.__name__}.from_pretrained("{out}"{trust})'
    title, read_by = (architecture.title, READ_BY_4) if architecture else (None, READ_BY_5)
    tokens = getattr(config, architecture.length[0] if architecture else "max_position_embeddings")
    read_by = READ_BY_5 if None in older.values() else read_by
    lengths = [tokens for tokens in (length << step for step in range(4)) if tokens <= _limit(task, config)]
    harness = ""
    if causal and lengths and (folder / TOKENIZER).is_file():
        # Without `max_length` the harness cuts prompts at the length of config.json, from the left.
        model = f"pretrained={out}{trust.replace(' ', '')},max_length={lengths[-1]}"
        metadata = json.dumps({"max_seq_lengths": lengths})
        harness = f"lm_eval --model hf --model_args {model} --tasks niah_single_1 --metadata '{metadata}'"
    return Exported(loaded_by, title, why, difference, read_by, tokens, harness)


def _write_for_older(folder: Path, older: dict[str, Any]) -> None:
    """Add what `transformers` 4 reads to the files that version 5 wrote."""
    config = read_json(folder / CONFIG)
    config |= {key: value for key, value in older.items() if value is not None}
    atomic_write(folder / CONFIG, json.dumps(config, indent=2))
    if (file := folder / TOKENIZER_CONFIG).is_file():
        tokenizer = read_json(file)
        if tokenizer.get("tokenizer_class") == "TokenizersBackend":  # both know its other name
            tokenizer["tokenizer_class"] = "PreTrainedTokenizerFast"
            atomic_write(file, json.dumps(tokenizer, indent=2))


def _limit(task: Task, config: Any) -> float:
    """The tokens that the exported model can read at a time. MPT's table of ALiBi has an end."""
    return min(task.model.encoding.max_length or math.inf, getattr(config, "max_seq_len", math.inf))


def _write_modelling(folder: Path, task: Task) -> None:
    """Write the module that `transformers` imports, and the plugins of the model's encodings.

    It imports the installed packages of these too.
    """
    encoding = task.recipe.as_dict()["model"]["encoding"]
    modules = {about.cls.__module__ for _, about in encodings_in(encoding, ()) if about.package}
    needed = [PACKAGE, *packages(encoding_sources(encoding))]
    names = []
    for plugin in map(Path, task.recipe.plugins):
        shutil.copyfile(plugin, folder / plugin.name)
        names.append(plugin.stem)
    # `transformers` copies modules that are imported like this.
    imports = "".join(f"from .{name} import *  # registers its encodings\n" for name in names)
    text = MODELLING.format(
        modules="".join(f"    import {one}  # registers its encodings\n" for one in sorted(modules)),
        packages=" ".join(needed),
        plugins=f"\n{imports}" if imports else "",
    )
    atomic_write(folder / "modeling_zoo.py", text)


def _write_tokenizer(task: Task, folder: Path) -> dict[str, int | None]:
    """Let `transformers` read tokenizer.json as the zoo does; returns the special tokens of the model."""
    # The defaults of an architecture are of another vocabulary.
    ids: dict[str, int | None] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    if not (folder / TOKENIZER).is_file():
        return ids
    from transformers import PreTrainedTokenizerFast

    ours = TextTokenizer.load(folder / TOKENIZER)
    ids = dict.fromkeys(ids, ours.end_token)
    if start := start_token(task, ours):
        ids["bos_token_id"] = start.id
    elif ours.start_token is not None:
        # The model has read no start token: its windows began with the text.
        ours.tokenizer.post_processor = None
        ours.save(folder / TOKENIZER)
    special = {key.removesuffix("_id"): token for key, token in ids.items()} | {"mask_token": ours.mask_token}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / TOKENIZER),
        **{key: ours.tokenizer.id_to_token(token) for key, token in special.items() if token is not None},
        # Text that happens to spell a special token is text, as it was in training; others have prompts
        # that spell them.
        split_special_tokens=getattr(task.recipe.data, "tokenizer", None) in (None, CHARACTERS),
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=task.recipe.data.sequence_length,
    )
    tokenizer.save_pretrained(folder)
    return ids


@torch.no_grad()
def _difference(task: Task, loader: Any, folder: Path, length: int, vocab_size: int) -> float:
    """The largest difference between the logits of the run's model and of what `loader` reads in a folder, at
    the trained length and at twice it where the encoding takes that.

    Raises AssertionError where they are not one model: that is a fault of the zoo.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = loader.from_pretrained(folder, dtype=torch.float32).eval()
    limit = int(min(max(1, MOST_LOGITS // vocab_size), _limit(task, model.config)))
    generator, largest = torch.Generator().manual_seed(0), 0.0
    for tokens in {min(length, limit), min(2 * length, limit)}:
        ids = torch.randint(vocab_size, (1, tokens), generator=generator)
        uncached = {"use_cache": False} if isinstance(task.model, Decoder) else {}
        wanted, got = task.model(ids), model(input_ids=ids, **uncached).logits
        difference = (got - wanted).abs().max().item()
        bound = CLOSE * max(1.0, wanted.abs().max().item())
        assert difference <= bound, f"logits of {tokens} tokens differ by {difference:.1e}"
        largest = max(largest, difference)
    return largest
