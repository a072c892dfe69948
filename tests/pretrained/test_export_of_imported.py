"""An imported model is exported with the published weights, special tokens and generation options."""

import json

import pytest
import torch
from published import TEXTS, publish
from tokenizers import processors
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from zoo.data.text.tokenizer import train_tokenizer
from zoo.pretrained.export import export
from zoo.pretrained.import_model import import_model, read_published

NAMES = {
    "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
    "sep_token": "<sep>", "cls_token": "<cls>", "mask_token": "<hidden>",
}  # fmt: skip
GENERATION = {
    "eos_token_id": [281, 287], "pad_token_id": 282, "temperature": 0.6, "top_p": 0.9, "do_sample": False,
    "repetition_penalty": 1.1, "max_new_tokens": 5, "use_cache": True,
}  # fmt: skip
"""A temperature without sampling is what `transformers` refuses to save, and some folders have it."""


def publish_with_special_tokens(name, folder, **config):
    """The model of `PUBLISHED` with special tokens of every kind, a chat template and generation options."""
    model = publish(name, folder)
    inner = train_tokenizer(TEXTS, 280).tokenizer
    inner.add_special_tokens([*NAMES.values(), "<turn>"])
    start = ("<s>", inner.token_to_id("<s>"))
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[start])
    PreTrainedTokenizerFast(
        tokenizer_object=inner, **NAMES, extra_special_tokens=["<turn>"], chat_template="{{ messages }}"
    ).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **config}))
    return model


def special_tokens(folder):
    """The special tokens of a folder as `transformers` reads them: ids, names, a text's tokens, template."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    ids = {key: value for key, value in config.to_dict().items() if key.endswith("_token_id")}
    shown = tokenizer(["the cat <turn> sat"])["input_ids"], tokenizer.chat_template
    return (
        {key: value for key, value in ids.items() if value is not None},
        tokenizer.special_tokens_map,
        shown,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "qwen2 with windows", "smollm3", "gemma 3", "olmo 3", "pythia", "neox with some biases", "gpt2", "bloom",
    "mpt", "modernbert", "bert", "cohere 2", "phi 3", "exaone 4", "ministral 3",
])  # fmt: skip
def test_an_imported_model_is_exported_with_its_weights(name, here):
    theirs = publish(name, here / "published")
    export(import_model(read_published("published"), name="ours"), here / "out", "hf")
    weights, exact = type(theirs).from_pretrained("out").state_dict(), name != "gemma 3"
    for key, value in theirs.state_dict().items():
        if name == "bert" and key.endswith(("position_embeddings.weight", "token_type_embeddings.weight")):
            continue  # the first row of one is part of the other
        # Gains are kept less 1, which rounds.
        torch.testing.assert_close(weights[key], value, rtol=0, atol=0 if exact else 1e-7)
    card = (here / "out" / "README.md").read_text()
    assert "| imported from | published (" in card and "| tokens seen | unknown |" in card
    assert "datasets:" not in card


@pytest.mark.parametrize(
    ("name", "change"), [("llama", "model.encoding=rerope"), ("gpt2", "model.encoding.beyond=clamp")]
)
@pytest.mark.parametrize("ids", [{}, {"bos_token_id": 280, "eos_token_id": [281, 282], "sep_token_id": 283}])
def test_special_tokens_and_generation_options_survive(name, change, ids, here):
    publish_with_special_tokens(name, here / "published", **ids)
    run = import_model(read_published("published"), name="ours")
    wanted, tokenizer = special_tokens("published"), (here / "published" / "tokenizer.json").read_bytes()
    export(run, here / "native", "hf")
    export(run, here / "weights", "safetensors")
    export(here / "weights", here / "again", "hf")
    export(run, here / "own", "hf", [change])
    assert (here / "own" / "modeling_zoo.py").is_file() and not (here / "native" / "modeling_zoo.py").exists()
    for out in ("native", "again", "own"):
        assert special_tokens(out) == wanted, out
        assert (here / out / "tokenizer.json").read_bytes() == tokenizer
        assert json.loads((here / out / "generation_config.json").read_text()) == GENERATION
    if name == "llama":
        export(run, here / "uncached", "hf", ["model.encoding.scaling=dynamic_ntk"])
        options = json.loads((here / "uncached" / "generation_config.json").read_text())
        assert options == GENERATION | {"use_cache": False}


@pytest.mark.parametrize(
    ("name", "key", "length"),
    [("llama 3", "max_position_embeddings", 128), ("mpt", "max_seq_len", 64), ("gpt2", "n_positions", 64)],
)
def test_an_unchanged_model_keeps_its_length(name, key, length, here):
    publish(name, here / "published")
    file = here / "published" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: length}))
    run = import_model(read_published("published"), name="ours")
    exported = export(run, here / "out", "hf")
    assert exported.tokens == json.loads((here / "out" / "config.json").read_text())[key] == length
    if name == "llama 3":  # trained on 8 tokens, and 32 times as many are asked for
        assert export(run, here / "longer", "hf", ["model.encoding.factor=32"]).tokens == 256


def test_without_a_tokenizer_configuration_the_start_token_is_that_of_the_post_processor(here):
    publish_with_special_tokens("llama", here / "published")
    (here / "published" / "tokenizer_config.json").unlink()
    export(import_model(read_published("published"), name="ours"), here / "out", "hf")
    tokenizer = AutoTokenizer.from_pretrained("out")
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")


@pytest.mark.slow
def test_the_harness_gives_the_published_and_the_exported_folder_the_same_loss(here):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    publish_with_special_tokens("llama", here / "published")
    export(import_model(read_published("published"), name="ours"), here / "out", "hf")
    asked = [Instance("loglikelihood_rolling", {}, (text * 9,), number) for number, text in enumerate(TEXTS)]
    losses = [
        HFLM(pretrained=str(here / folder), device="cpu").loglikelihood_rolling(asked, disable_tqdm=True)
        for folder in ("published", "out")
    ]
    assert losses[0] == losses[1]
