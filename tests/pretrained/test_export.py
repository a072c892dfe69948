"""`zoo export`: the exported model loads elsewhere and gives the logits of the run."""

import importlib
import json
import sys

import pytest
import torch
from tokenizers import processors
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

import zoo
from zoo import registry
from zoo.cli import main
from zoo.data.text.tokenizer import TextTokenizer, learn_characters
from zoo.errors import InputError
from zoo.models.decoding import decode
from zoo.pretrained.architectures import architecture_for
from zoo.pretrained.export import export
from zoo.pretrained.import_model import import_model, read_published
from zoo.reports.fit import fit

GATED = ("model.norm=rmsnorm", "model.activation=swiglu")
ROPE = (*GATED, "model.encoding=rope")
LENGTH = 16
PLUGIN = '''
import torch
import zoo


@zoo.register("root")
class Root(zoo.Encoding):
    """Scores fall with the square root of distance."""

    family, relative = "bias", True

    def __init__(self, size: zoo.Size, *, slope: float = 0.5):
        super().__init__(size)
        self.slope = torch.nn.Parameter(torch.full((size.num_heads,), slope))

    def bias(self, head, q, k):
        return -self.slope[head] * (q - k).abs().sqrt()
'''


NATIVE = {
    "Llama, grouped, wide heads, biases, yarn": (
        *GATED, "model.encoding={name: rope, scaling: yarn, factor: 4}", "model.num_kv_heads=1",
        "model.d_ff=24", "model.tie_embeddings=false", "model.bias=all", "model.head_dim=12",
        "model.norm_eps=1e-3",
    ),
    "Llama, ntk": (*GATED, "model.encoding={name: rope, scaling: ntk, factor: 4}"),
    "Mistral, linear": (*GATED, "model.encoding={name: rope, scaling: linear, factor: 4}", "model.window=6"),
    "Qwen2, llama3": (*GATED, "model.encoding={name: rope, scaling: llama3, factor: 4}", "model.bias=qkv"),
    "Qwen3, windows": (*ROPE, "model.qk_norm=true", "model.window=[6, null]"),
    "SmolLM3, windows": (
        *GATED, "model.encoding={name: interleave, pattern: [rope, none]}", "model.window=[6, null]",
    ),
    "Gemma 3, a base of its own in windows": (
        "model.norm=rmsnorm", "model.activation=geglu_tanh", "model.norm_position=both", "model.qk_norm=true",
        "model.embedding_scale=sqrt_d_model", "model.attention_scale=0.25", "model.window=[6, null]",
        "model.encoding={name: interleave, pattern: [{name: rope, base: 500}, {name: rope, scaling: linear, "
        "factor: 4}]}",
    ),
    "Gemma 3, no window, yarn": (
        "model.norm=rmsnorm", "model.activation=geglu_tanh", "model.norm_position=both", "model.qk_norm=true",
        "model.embedding_scale=sqrt_d_model", "model.encoding={name: rope, scaling: yarn, factor: 4}",
    ),
    "OLMo 2, grouped": (
        *ROPE, "model.norm_position=output", "model.qk_norm=across_heads", "model.num_kv_heads=1",
        "model.bias=attention",
    ),
    "OLMo 3, windows": (
        *GATED, "model.norm_position=output", "model.qk_norm=across_heads", "model.window=[6, null]",
        "model.encoding={name: interleave, pattern: [{name: rope, base: 500000}, {name: rope, base: 500000, "
        "scaling: yarn, factor: 4}]}",
    ),
    "Cohere 2, untied": (
        "model.activation=geglu", "model.norm_bias=false", "model.parallel_residual=shared_norm",
        "model.unembedding_scale=0.3", "model.window=[6, null]", "model.tie_embeddings=false",
        "model.encoding={name: interleave, pattern: [{name: rope, layout: interleaved, scaling: yarn, "
        "factor: 4}, none]}",
    ),
    "Phi-3, longrope": (
        *GATED, "model.num_kv_heads=1",
        "model.encoding={name: rope, partial: 0.5, scaling: longrope, factor: 4, "
        "long_factor: [2, 3]}",
    ),
    "Phi-3, partial, window": (*GATED, "model.encoding={name: rope, partial: 0.7}", "model.window=6"),
    "EXAONE 4, windows, llama3": (
        *GATED, "model.norm_position=output", "model.qk_norm=true", "model.window=[null, 6]",
        "model.encoding={name: interleave, pattern: [none, {name: rope, scaling: llama3, factor: 4}]}",
    ),
    "EXAONE 4, no window": (*ROPE, "model.norm_position=output", "model.qk_norm=true"),
    "ModernBERT, every second layer": (
        "model.first_norm=false", "model.head_transform=true", "model.embedding_norm=true",
        "model.activation=geglu", "model.window=[null, 5]",
        "model.encoding={name: interleave, pattern: [{name: rope, base: 500}, rope]}",
    ),
    "ModernBERT, no window, linear": (
        "model.first_norm=false", "model.head_transform=true", "model.embedding_norm=true",
        "model.activation=geglu", "model.encoding={name: rope, base: 500, scaling: linear, factor: 4}",
    ),
    "BERT, longer table": (
        "model.norm_position=post", "model.head_transform=true", "model.embedding_norm=with_positions",
        "model.bias=all", "model.encoding={name: learned, table_length: 64}",
    ),
    "GPT-NeoX, partial, in sequence": (
        "model.encoding={name: rope, partial: 0.5}", "model.tie_embeddings=false", "model.bias=qkv",
        "model.activation=relu",
    ),
    "GPT-NeoX, a part that is rounded up": (
        "model.encoding={name: rope, partial: 0.7}", "model.tie_embeddings=false",
    ),
    "GPT-NeoX, parallel": ("model.encoding=rope", "model.parallel_residual=true"),
    "GPT-2, untied": (
        "model.encoding={name: learned, table_length: 64}", "model.tie_embeddings=false",
        "model.activation=gelu_tanh", "model.bias=all",
    ),
    "MPT, six heads": (
        "model.norm_bias=false", "model.d_model=24", "model.num_heads=6", "model.tie_embeddings=false",
    ),
    "BLOOM, six heads": (
        "model.embedding_norm=true", "model.activation=gelu_tanh", "model.d_model=24", "model.num_heads=6",
    ),
}  # fmt: skip
OWN = ("[rope, fox]", "{name: rope, scaling: dynamic_ntk, factor: 2}")
REASONS = {
    "alibi": "no MPT: norm_bias is True",
    "[rope, fox]": "no GPT-NeoX: encoding is rope+fox",
    "{name: learned, beyond: clamp}": "no GPT-2: learned has beyond clamp",
    "{name: rope, scaling: dynamic_ntk, factor: 2}": "no GPT-NeoX: rope has scaling dynamic_ntk",
    "{name: rope, imaginary: true}": "no GPT-NeoX: rope has imaginary True",
    "t5": "no GPT-NeoX: encoding is t5",
}


def ids(batch, length):
    return torch.randint(300, (batch, length), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_same(model, task, lengths):
    """The logits are the run's, with and without padding on the left, which counts for nothing."""
    for length in lengths:
        tokens = ids(2, length)
        mask = torch.ones_like(tokens)
        wanted = task.model(tokens)
        scale = wanted.abs().max()
        assert (model(input_ids=tokens).logits - wanted).abs().max() <= 1e-5 * scale
        assert (model(input_ids=tokens, attention_mask=mask).logits - wanted).abs().max() <= 1e-5 * scale
        mask[1, :5] = 0
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        given = {} if type(model).__name__ == "ZooForCausalLM" else {"position_ids": positions}
        got = model(input_ids=tokens, attention_mask=mask, **given).logits
        wanted = task.model(tokens, mask.bool())
        assert (got - wanted)[mask.bool()].abs().max() <= 1e-5 * scale


@pytest.mark.parametrize("title", NATIVE)
def test_a_known_architecture_needs_no_code_of_the_zoo_and_is_imported_again(title, checkpoint, tmp_path):
    place, task = checkpoint(*NATIVE[title], kind="masked" if "BERT" in title else "text")
    exported = export(place, tmp_path / "out", "hf")
    assert exported.architecture == title.split(",")[0] and exported.difference < 1e-4
    auto = AutoModelForCausalLM if task.model.causal else AutoModelForMaskedLM
    model = auto.from_pretrained(tmp_path / "out")
    assert type(model).__module__.startswith("transformers.")
    assert not (tmp_path / "out" / "modeling_zoo.py").exists()
    assert_same(model, task, (LENGTH, 4 * LENGTH))
    again = zoo.load(import_model(read_published(str(tmp_path / "out")), "again", out=tmp_path / "again"))
    assert (again(ids(2, 40)) - task.model(ids(2, 40))).abs().max() < 1e-4
    # The keys of version 4 alone are the same model.
    assert exported.read_by.startswith("transformers 4.57")
    file = tmp_path / "out" / "config.json"
    config = json.loads(file.read_text())
    kept = {key: value for key, value in config.items() if key != "rope_parameters"}
    if "ModernBERT" in title:
        del kept["layer_types"]
    file.write_text(json.dumps(kept))
    assert_same(auto.from_pretrained(tmp_path / "out"), task, (LENGTH, 4 * LENGTH))
    tokenizer = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"


GEMMA3 = NATIVE["Gemma 3, a base of its own in windows"][:-1]
MODERNBERT = NATIVE["ModernBERT, every second layer"][:-2]
OLMO3 = NATIVE["OLMo 3, windows"][:-1]
LATER = {
    "OLMo 3": (*OLMO3, "model.encoding={name: interleave, pattern: [{name: rope, base: 500}, rope]}"),
    "Gemma 3": (*GEMMA3, "model.encoding={name: rope, scaling: linear, factor: 4}"),
    "Phi-3": (*GATED, "model.encoding={name: rope, scaling: longrope, factor: 4, attention_factor: 1.3}"),
    "Ministral 3": (*ROPE, "model.logit_scale={name: temperature, scale: 0.3, length: 5, offset: 0}"),
    "ModernBERT": (*MODERNBERT, "model.window=[5, null]", "model.encoding=rope"),
}  # fmt: skip


@pytest.mark.parametrize("title", LATER)
def test_what_the_keys_of_version_4_cannot_hold_is_for_version_5(title, checkpoint, tmp_path):
    place, _ = checkpoint(*LATER[title], kind="masked" if "BERT" in title else "text")
    exported = export(place, tmp_path / "out", "hf")
    assert (exported.architecture, exported.read_by) == (title, "transformers 5 and later")
    assert "| read by | transformers 5 and later |" in (tmp_path / "out" / "README.md").read_text()


def test_a_ramp_that_is_not_truncated_is_written_where_it_is_read(checkpoint, tmp_path):
    yarn = "model.encoding={name: rope, scaling: yarn, factor: 4, truncate: false}"
    for number, (sets, title) in enumerate([(GATED, "Llama"), (GEMMA3, None)]):
        place, _ = checkpoint(*sets, yarn, folder=f"run {number}")
        assert export(place, tmp_path / str(number), "hf").architecture == title


def test_the_reason_for_code_of_the_zoo_names_the_nearest_architecture(recipe):
    for encoding, reason in REASONS.items():
        section = recipe("text", f"model.encoding={encoding}").as_dict()["model"]
        assert architecture_for(section | {"d_ff": 4 * section["d_model"]}) == (None, reason)


@pytest.mark.parametrize("encoding", OWN)
def test_another_model_is_loaded_with_a_file_that_imports_the_zoo(
    encoding, checkpoint, tmp_path, monkeypatch
):
    place, task = checkpoint(f"model.encoding={encoding}")
    exported = export(place, tmp_path / "out", "hf")
    assert (exported.architecture, exported.reason) == (None, REASONS[encoding])
    # Where `transformers` keeps copies of such files.
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True)
    assert_same(model, task, (LENGTH, 4 * LENGTH))
    prompts, mask = ids(2, 9), torch.ones(2, 9, dtype=torch.long)
    mask[1, :4] = 0
    wanted = torch.stack(list(decode(task.model, prompts, 6, mask.bool())), 1)
    for cached in (True, False):
        options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "use_cache": cached}
        written = model.generate(prompts, attention_mask=mask, pad_token_id=0, **options)
        assert torch.equal(written[:, 9:], wanted), cached
    beams = {"max_new_tokens": 5, "num_beams": 3, "eos_token_id": None, "pad_token_id": 0}
    with_cache, without = (model.generate(prompts, attention_mask=mask, use_cache=c, **beams) for c in (1, 0))
    assert torch.equal(with_cache, without)
    low = AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True, dtype=torch.bfloat16)
    fixed = dict(task.model.bfloat16().named_buffers())
    assert all(torch.equal(value, fixed[name]) for name, value in low.model.named_buffers())
    assert low.dtype == torch.bfloat16 and low(ids(1, 8)).logits.isfinite().all()


def test_weights_are_loaded_by_the_zoo_bit_for_bit(checkpoint, tmp_path):
    names = {"model.safetensors", "recipe.yaml", "card.json", "tokenizer.json", "README.md"}
    for kind in ("text", "masked", "max_index"):
        place, task = checkpoint(kind=kind, folder=kind)
        out = tmp_path / f"{kind}_out"
        exported = export(place, out, "safetensors")
        assert {file.name for file in out.iterdir()} == names
        model = eval(exported.loaded_by, {"zoo": zoo})
        assert torch.equal(model(ids(2, 7)), task.model(ids(2, 7)))
    assert main(["show", str(tmp_path / "text_out" / "recipe.yaml")]) == 0


@pytest.mark.slow
def test_an_exported_folder_is_evaluated_and_trained_on_like_a_run(here, recipe, capsys):
    run = fit(recipe("text", "evaluate.lengths=[16,32]"))
    export(run, here / "out", "safetensors")
    assert main(["evaluate", str(here / "out"), "--lengths", "16,32"]) == 0
    rows = [json.loads((place / "evaluation" / "lengths.json").read_text()) for place in (run, here / "out")]
    assert len(rows[0]) == len(rows[1]) == 2
    for of_run, exported in zip(*rows, strict=True):
        assert of_run["loss_nats"] == exported["loss_nats"]
    on = fit(recipe("text", f"init_from={here / 'out'}", "name=on"))
    assert json.loads((on / "card.json").read_text())["init_from"]["steps"] == 6


def test_an_encoding_changed_after_training_is_exported_as_changed(checkpoint, tmp_path):
    place, task = checkpoint(*ROPE)
    sets = ["model.encoding.scaling=yarn", "model.encoding.factor=4"]
    out = tmp_path / "out"
    export(place, out, "hf", sets)
    wanted = zoo.load(place, sets=sets)(ids(1, 50))
    assert not torch.equal(wanted, task.model(ids(1, 50)))
    assert (AutoModelForCausalLM.from_pretrained(out)(ids(1, 50)).logits - wanted).abs().max() < 1e-4
    assert "model.encoding.scaling=yarn" in (out / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("named", ["null", "characters"])
def test_the_tokenizer_is_the_run_s(named, checkpoint, tmp_path):
    place, _ = checkpoint(f"data.tokenizer={named}")
    if named == "characters":
        learn_characters(["the dog on the mat"], 300).save(place / "tokenizer.json")
    export(place, tmp_path / "out", "hf")
    theirs, ours = (
        AutoTokenizer.from_pretrained(tmp_path / "out"),
        TextTokenizer.load(place / "tokenizer.json"),
    )
    for text in ("the dog on the mat", "ünknown, 漢字▁\n\n", "a <|endoftext|> is text like any other"):
        assert theirs(text)["input_ids"] == ours.encode(text).tolist()
        assert theirs.decode(theirs(text)["input_ids"]) == text
    assert theirs.eos_token_id == theirs.pad_token_id == ours.end_token and theirs.padding_side == "left"
    assert theirs.mask_token_id == ours.mask_token and theirs.unk_token is None


def test_a_post_processor_that_training_did_not_use_is_left_out(checkpoint, tmp_path):
    place, _ = checkpoint("data.tokenizer=run")
    inner = TextTokenizer.load(place / "tokenizer.json").tokenizer
    inner.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", inner.token_to_id("<|endoftext|>"))]
    )
    ours = TextTokenizer(inner)
    ours.save(place / "tokenizer.json")
    export(place, tmp_path / "out", "hf")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs("the dog")["input_ids"] == ours.encode("the dog").tolist()


def test_a_refused_export_leaves_no_file(checkpoint, tmp_path, capsys):
    place, _ = checkpoint(kind="masked")
    out = tmp_path / "out"
    assert main(["export", str(place), "--out", str(out)]) == 2
    assert "--format safetensors" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "rum"), "--out", str(out)]) == 2
    assert "no such run folder or checkpoint" in capsys.readouterr().err
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert main(["export", str(place), "--format", "safetensors", "--out", str(out)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [file.name for file in out.iterdir()] == ["notes.txt"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out", "run"]


@pytest.mark.launch
def test_a_plugin_s_encoding_is_exported_with_its_file(here, checkpoint, zoo_command, monkeypatch):
    """By processes of their own: in each of them a name is registered once."""
    (here / "my_root.py").write_text(PLUGIN)
    plugin = ["--set", "plugins=[my_root.py]"]
    small = ["--set", "model.encoding=root", "--set", "trainer.max_steps=2", "--out", "trained"]
    assert zoo_command("fit", "text.yaml", *plugin, *small).returncode == 0
    done = zoo_command("export", "trained", "--out", "exported", *plugin)
    assert done.returncode == 0, done.stderr
    assert "no GPT-NeoX: encoding is root" in done.stdout and done.stdout.splitlines()[-1].startswith(
        "done: exported; AutoModel"
    )
    # Where the plugin is not: what runs is the exported file.
    (here / "my_root.py").unlink()
    monkeypatch.setenv("HF_MODULES_CACHE", str(here / "modules"))
    program = (
        "import torch; from transformers import AutoModelForCausalLM; torch.manual_seed(0)\n"
        "model = AutoModelForCausalLM.from_pretrained('exported', trust_remote_code=True)\n"
        "torch.save(model(torch.arange(20)[None]).logits, 'logits.pt')"
    )
    assert (ran := zoo_command("-c", program, launcher=())).returncode == 0, ran.stderr
    (here / "my_root.py").write_text(PLUGIN)
    program = (
        "import zoo, torch\n"
        "wanted = zoo.load('trained', plugins='my_root.py')(torch.arange(20)[None])\n"
        "assert torch.allclose(torch.load('logits.pt'), wanted, atol=1e-5)"
    )
    assert (ran := zoo_command("-c", program, launcher=())).returncode == 0, ran.stderr


def test_an_export_names_the_package_of_its_encoding(checkpoint, tmp_path, monkeypatch, forgetful_registry):
    (tmp_path / "root_package").mkdir()
    (tmp_path / "root_package" / "root.py").write_text(PLUGIN)
    with monkeypatch.context() as installed:
        installed.syspath_prepend(tmp_path)
        installed.setitem(registry._packages, "root_package", "root-pe 0.3.1")
        importlib.import_module("root_package.root")
        place, _ = checkpoint("model.encoding=root")
        for form in ("hf", "safetensors"):
            export(place, tmp_path / form, form)
            card = (tmp_path / form / "README.md").read_text()
            assert "`pip install positional-encoding-zoo root-pe==0.3.1`" in card
        code = (tmp_path / "hf" / "modeling_zoo.py").read_text()
        exec(code, {})
    for name in ("root_package.root", "root_package"):
        del sys.modules[name]
    with pytest.raises(ImportError, match=r"pip install positional-encoding-zoo root-pe==0\.3\.1"):
        exec(code, {})


def test_a_failed_export_leaves_no_file_and_an_empty_folder_is_used(
    checkpoint, tmp_path, monkeypatch, capsys
):
    place, _ = checkpoint()
    out = tmp_path / "out"
    out.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("zoo.pretrained.export.write_card", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(place, out, "safetensors")
    assert not list(out.iterdir()) and sorted(file.name for file in tmp_path.iterdir()) == ["out", "run"]
    assert main(["export", str(place), "--format", "safetensors", "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f'done: {out}; zoo.load("{out}") loads it'


def test_a_file_of_weights_alone_or_a_damaged_one_is_reported(checkpoint, tmp_path):
    place, _ = checkpoint(*ROPE)
    export(place, tmp_path / "out", "hf")
    with pytest.raises(InputError, match="weights without a recipe"):
        zoo.load(tmp_path / "out")
    file = place / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged"):
        zoo.load(place)
