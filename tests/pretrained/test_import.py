"""Pretrained models become runs that compute what `transformers` does."""

import json
import re
from itertools import pairwise

import pytest
import torch
from published import PUBLISHED, TEXTS, VOCABULARY, publish
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import zoo
from zoo.cli import main
from zoo.contract.causality import decoded
from zoo.data import open_data
from zoo.data.text import cache as token_cache
from zoo.data.text.tokenizer import train_tokenizer
from zoo.errors import InputError
from zoo.generation.text import open_generator
from zoo.pretrained.architectures import ARCHITECTURES
from zoo.pretrained.import_model import import_model, read_published
from zoo.recipe import read_recipe

NEAR = 1e-5
OLDER = {"weight": "gamma", "bias": "beta"}
RELATIVE = ("bloom", "mpt")  # take no position_ids, only a mask
IMPORTED = (
    "llama", "llama with biases", "llama 3", "llama by yarn", "mistral", "qwen2 with windows", "qwen3",
    "smollm3", "gemma 3", "olmo 2", "olmo 3", "pythia", "neox in sequence", "gpt2", "bloom", "mpt",
    "modernbert", "bert", "cohere 2", "phi 3", "exaone 4", "ministral 3",
)  # fmt: skip


def test_every_architecture_is_imported():
    assert len({PUBLISHED[name][0] for name in IMPORTED}) == len(ARCHITECTURES)


@pytest.mark.parametrize("name", IMPORTED)
@torch.no_grad()
def test_logits_are_those_of_transformers(name, here):
    theirs = publish(name, here / "published")
    ours = zoo.load(import_model(read_published("published"), name="ours"))
    for length in (32, 60):  # trained on 32, or 64, or 2,048
        tokens = torch.randint(VOCABULARY, (2, length))
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, atol=NEAR, rtol=0)
    if ours.causal:
        by_token = decoded(ours, tokens[:, :20], 1)
        torch.testing.assert_close(by_token, theirs(tokens[:, :20]).logits, atol=NEAR, rtol=0)
    keep = torch.ones(2, 20, dtype=torch.bool)
    keep[0, :6] = False
    positions = {} if name in RELATIVE else {"position_ids": (keep.long().cumsum(1) - 1).clamp(min=0)}
    padded = theirs(tokens[:, :20], attention_mask=keep.long(), **positions).logits
    torch.testing.assert_close(ours(tokens[:, :20], keep)[keep], padded[keep], atol=NEAR, rtol=0)


def test_shards_and_half_precision_and_the_base_model_alone(here):
    model = publish("llama", here / "one")
    publish("llama", here / "sharded", max_shard_size="100KB")
    assert len(list((here / "sharded").glob("*.safetensors"))) > 1
    one, sharded = (zoo.load(import_model(read_published(name))) for name in ("one", "sharded"))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), sharded.parameters(), strict=True))
    publish("llama", here / "half")
    model.half().save_pretrained(here / "half")
    half = zoo.load(import_model(read_published("half")))
    assert next(half.parameters()).dtype == torch.float32
    torch.testing.assert_close(half.tokens.weight, one.tokens.weight, atol=1e-3, rtol=0)
    gpt2 = publish("gpt2", here / "gpt2")
    whole = zoo.load(import_model(read_published("gpt2"), name="gpt2_whole"))
    gpt2.transformer.save_pretrained(here / "gpt2")
    base = zoo.load(import_model(read_published("gpt2"), name="gpt2_base"))
    assert all(torch.equal(a, b) for a, b in zip(base.parameters(), whole.parameters(), strict=True))


def test_the_names_of_the_first_bert_are_read(here):
    publish("bert", here / "published")
    file = here / "published" / "model.safetensors"
    weights = load_file(file)
    older = {
        re.sub("LayerNorm.(weight|bias)", lambda m: "LayerNorm." + OLDER[m[1]], name): value
        for name, value in weights.items()
    }
    assert older.keys() != weights.keys()
    older |= {f"bert.pooler.dense.{kind}": torch.zeros(64) for kind in ("weight", "bias")}
    wanted = zoo.load(import_model(read_published("published"), name="wanted"))
    save_file(older, file)
    ours = zoo.load(import_model(read_published("published"), name="ours"))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), wanted.parameters(), strict=True))


COPIES = [
    ("llama with biases", "lm_head.weight", "model.embed_tokens.weight"),
    ("gpt2", "lm_head.weight", "transformer.wte.weight"),
    ("modernbert", "decoder.weight", "model.embeddings.tok_embeddings.weight"),
    ("bert", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    ("bert", "cls.predictions.decoder.bias", "cls.predictions.bias"),
]


@pytest.mark.parametrize(("name", "copy", "first"), COPIES)
def test_a_second_copy_of_a_tensor_is_left_out_where_equal_and_refused_where_not(name, copy, first, here):
    publish(name, here / "published")
    file = here / "published" / "model.safetensors"
    weights = load_file(file)
    wanted = zoo.load(import_model(read_published("published"), name="wanted"))
    save_file({**weights, copy: weights[first].clone()}, file)
    ours = zoo.load(import_model(read_published("published"), name="ours"))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), wanted.parameters(), strict=True))
    for other in (weights[first] + 1e-3, weights[first][1:].clone()):
        save_file({**weights, copy: other}, file)
        with pytest.raises(InputError, match=f"{re.escape(copy)} differs from {re.escape(first)}"):
            import_model(read_published("published"), name="other")
    assert not (here / "runs" / "other").exists()


@pytest.mark.parametrize("name", ["gemma 3", "olmo 3", "modernbert"])
def test_a_section_for_a_type_of_layers_has_no_truncate(name, here):
    publish(name, here / "published")
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "truncate": False}
    forms = {"rope_parameters.full_attention": {"full_attention": yarn}, "rope_scaling": yarn}
    for key, value in forms.items():
        changed_config(here / "published", **{"rope_parameters": None, key.partition(".")[0]: value})
        with pytest.raises(InputError, match=rf"{key}\.truncate"):
            read_published("published")


WRAPPERS = {
    "llama": "_orig_mod.", "pythia": "module.", "gpt2": "language_model.", "bert": "_orig_mod.module.",
}  # fmt: skip


@pytest.mark.parametrize(("name", "wrapper"), WRAPPERS.items())
def test_a_prefix_of_all_weights_is_left_out(name, wrapper, here):
    publish(name, here / "published")
    file = here / "published" / "model.safetensors"
    weights = load_file(file)
    wanted = zoo.load(import_model(read_published("published"), name="wanted"))
    save_file({wrapper + key: value for key, value in weights.items()}, file)
    ours = zoo.load(import_model(read_published("published"), name="ours"))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), wanted.parameters(), strict=True))
    save_file({**{wrapper + key: value for key, value in weights.items()}, "more": torch.ones(1)}, file)
    with pytest.raises(InputError, match="more has no place"):
        import_model(read_published("published"), name="other")


def word_piece(place):
    """The tokenizer of an uncased BERT, with its three special tokens around and in a text."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=special)
    tokenizer.train_from_iterator(TEXTS, trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.save(str(place / "tokenizer.json"))
    return tokenizer


def test_word_pieces_are_scored_where_masked_and_refused_where_bytes_are(here, cache, capsys, monkeypatch):
    publish("bert", here / "published")
    tokenizer = word_piece(here / "published")
    sets = ["data.name=sample", "data.documents=12", "data.words=60", f"data.cache={cache}"]
    run = import_model(read_published("published"), "ours", sets)
    source = open_data(read_recipe(run / "recipe.yaml"))
    ours = source.tokenizer
    names = {"start": ours.start_token, "mask": tokenizer.id_to_token(ours.mask_token)}
    assert names == {"start": "[CLS]", "mask": "[MASK]"} and tokenizer.id_to_token(ours.end_token) == "[SEP]"
    assert ours.encode("The CAT").tolist() == tokenizer.encode("the cat", add_special_tokens=False).ids
    assert main(["evaluate", str(run), "--lengths", "16,32", "--set", "evaluate.max_tokens=256"]) == 0
    rows = json.loads((run / "evaluation" / "lengths.json").read_text())
    assert [row["length"] for row in rows] == [16, 32] and rows[0]["tokens"] == rows[1]["tokens"] > 10
    assert all(row["loss_nats"] > 0 and "bits_per_byte" not in row for row in rows)
    publish("llama", here / "decoder")
    word_piece(here / "decoder")
    # Another text, which is not tokenized before the refusal.
    run = import_model(read_published("decoder"), "decoder", [*sets, "data.corpus_seed=7"])
    monkeypatch.setattr(token_cache, "_build", None)
    assert main(["prepare", str(run / "recipe.yaml")]) == 2
    assert "bits per byte are unknown" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--lengths", "16"]) == 2
    assert "bits per byte are unknown" in capsys.readouterr().err


def test_the_card_has_the_origin_and_null_for_unknown_facts(here):
    publish("llama", here / "published")
    folder = import_model(read_published("published"))
    assert folder.name == "published"
    card = json.loads((folder / "card.json").read_text())
    assert card["imported"]["from"] == "published"
    assert card["imported"]["architecture"] == "LlamaForCausalLM"
    assert set(card["imported"]["sha256"]) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert card["tokens_seen"] is None and card["seed"] is None
    assert "corpus" not in card["fingerprint"]


def changed_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


# test_config_keys.py has every key.
CHANGES = [
    ({"architectures": ["GptOssForCausalLM"]}, "GptOssForCausalLM"),
    ({"model_type": "mistral"}, "model_type"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "mscale": 0.7}}, "rope_parameters.mscale"),
    ({"hidden_size": "64"}, "hidden_size"),
    ({"num_key_value_heads": 3}, "config.json: model.num_kv_heads"),
    ({"num_hidden_layers": 0}, "config.json: num_hidden_layers"),
    ({"head_dim": 7}, "config.json: model.encoding"),
    ({"rope_parameters": {"rope_theta": 0}}, "config.json: model.encoding.base"),
    ({"num_hidden_layers": 4}, "model.layers.3."),
    ({"num_hidden_layers": 2}, "model.layers.2."),
    ({"intermediate_size": 96}, "gate_proj"),
    ({"vocab_size": 301}, "tokens.weight"),
]


def test_a_configuration_that_would_change_the_result_is_refused_by_name(here):
    publish("llama", here / "published")
    config = (here / "published" / "config.json").read_text()
    for changes, named in CHANGES:
        (here / "published" / "config.json").write_text(config)
        changed_config(here / "published", **changes)
        with pytest.raises(InputError, match=re.escape(named)):
            import_model(read_published("published"))
        assert not list(here.glob("runs/*"))


def test_all_unknown_keys_are_reported_at_once_and_can_be_ignored(here):
    publish("llama", here / "published")
    changed_config(here / "published", logit_softcap=3.0, attention_sinks=4)
    with pytest.raises(InputError) as caught:
        read_published("published")
    assert len(caught.value.problems) == 2
    assert read_published("published", ignored=["logit_softcap", "attention_sinks"])


def test_a_missing_or_damaged_file_is_reported(here):
    with pytest.raises(InputError, match="no id of the hub"):
        read_published("nowhere/at/all")
    folder = here / "published"
    publish("llama", folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        import_model(read_published("published"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="could run code"):
        read_published("published")
    (folder / "model.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(InputError, match="damaged"):
        read_published("published")


def test_an_import_overwrites_no_run_and_changes_no_model(here):
    publish("llama", here / "published")
    import_model(read_published("published"))
    with pytest.raises(InputError, match="already holds a run"):
        import_model(read_published("published"))
    for wrong in ("model.encoding.base=5", "data.sequence_length=0", "data.nam=text"):
        with pytest.raises(InputError) as caught:
            import_model(read_published("published"), name="other", sets=[wrong])
        assert wrong.partition("=")[0] in str(caught.value) and "config.json" not in str(caught.value)


def byte_level(special, place):
    """A byte-level BPE with special tokens of its own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["the cat sat on the mat"], trainer)
    tokenizer.save(str(place / "tokenizer.json"))


def test_a_tokenizer_with_more_tokens_than_the_embedding_has_rows_is_refused(here):
    publish("llama", here / "published")
    file = here / "published" / "tokenizer.json"
    tokenizer = train_tokenizer(TEXTS, VOCABULARY).tokenizer
    import_model(read_published("published"), name="equal")
    for size, token in enumerate(("<pad>", "<turn>"), VOCABULARY + 1):
        tokenizer.add_special_tokens([token])
        tokenizer.save(str(file))
        with pytest.raises(InputError, match=rf"config\.json: vocab_size: {VOCABULARY} .* {size} "):
            import_model(read_published("published"), name="larger")
    assert not (here / "runs" / "larger").exists()


@pytest.mark.parametrize(("file", "key", "value"), [
    ("tokenizer_config.json", "eos_token", {"content": "<stop>"}),
    ("generation_config.json", "eos_token_id", [1, 0]),
    ("config.json", "eos_token_id", 1),
    (None, None, None),
])  # fmt: skip
def test_the_end_of_a_document_is_the_published_one_or_none(file, key, value, here, cache, capsys):
    folder = here / "published"
    publish("llama", folder)
    byte_level(["<pad>", "<stop>"] if file else [], folder)
    if file:
        place = folder / file
        place.write_text(
            json.dumps({**(json.loads(place.read_text()) if place.exists() else {}), key: value})
        )
    sample = ["data.name=sample", "data.documents=12", "data.words=60", f"data.cache={cache}"]
    run = import_model(read_published("published"), "ours", sample)
    assert ("without a separator" in capsys.readouterr().err) == (file is None)
    source = open_data(read_recipe(run / "recipe.yaml"))
    stream, starts = source.stream("train"), source.stream("train").document_starts
    documents = [stream[a:b] for a, b in pairwise([*starts, len(stream)])]
    ends = [source.tokenizer.decode(one[-1:]) for one in documents]
    assert len(documents) == 10
    assert set(ends) == {"<stop>"} if file else "<stop>" not in ends
    written = open_generator(run).generate(["the cat"], 3)
    assert written[0].tokens == 3 or written[0].ended
