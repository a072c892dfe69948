"""Each key of a `config.json`, absent or changed: import gives the logits of `transformers` or names the key.

The keys come from the configuration classes of the installed `transformers`, and from older files.
"""

import json
from collections import Counter
from dataclasses import fields
from itertools import product

import pytest
import torch
import transformers

from zoo.errors import InputError
from zoo.pretrained.architectures import ARCHITECTURES
from zoo.pretrained.config import NO_CHANGE, REQUIRED
from zoo.pretrained.import_model import load_weights, read_published, recipe_of
from zoo.tasks import build_task

SHORT, LONG, NEAR = 8, 300, 1e-5
# ALiBi there is the slope times the position of the key: its rounding grows with the length.
BY_KEY = {"MptForCausalLM": 3e-5, "BloomForCausalLM": 3e-5}
VOCABULARY, LENGTH = 61, 32
ORIGINAL = "original_max_position_embeddings"
ROTARY = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": LENGTH,
}  # fmt: skip
GROUPED = {**ROTARY, "num_key_value_heads": 2}
MINISTRAL = {"rope_type": "default", "rope_theta": 500.0, ORIGINAL: 16, "llama_4_scaling_beta": 0.3}
SIZES = {
    "LlamaForCausalLM": GROUPED,
    # As many heads and layers as are needed to tell a default.
    "MistralForCausalLM": {**GROUPED, "hidden_size": 32, "num_attention_heads": 8, "sliding_window": 5},
    "Qwen2ForCausalLM": GROUPED,
    "Qwen3ForCausalLM": {**GROUPED, "head_dim": 4},
    "SmolLM3ForCausalLM": {**GROUPED, "num_hidden_layers": 4, "pad_token_id": 0},
    "Gemma3ForCausalLM": {**GROUPED, "num_hidden_layers": 3, "head_dim": 4, "sliding_window": 5,
                          "sliding_window_pattern": 3},
    "Olmo2ForCausalLM": GROUPED,
    "Olmo3ForCausalLM": {**GROUPED, "num_hidden_layers": 4, "sliding_window": 5},
    "Cohere2ForCausalLM": {**GROUPED, "num_hidden_layers": 4, "sliding_window": 5},
    "Phi3ForCausalLM": {**GROUPED, "pad_token_id": 0, ORIGINAL: 16},
    "Exaone4ForCausalLM": {**GROUPED, "num_hidden_layers": 4, "sliding_window": 5},
    "Ministral3ForCausalLM": {**GROUPED, "head_dim": 4, "rope_parameters": MINISTRAL},
    "ModernBertForMaskedLM": {**ROTARY, "num_hidden_layers": 3, "local_attention": 8, "pad_token_id": 0},
    "BertForMaskedLM": {**ROTARY, "max_position_embeddings": LONG},
    "GPTNeoXForCausalLM": {**ROTARY, "hidden_size": 32, "num_attention_heads": 2},
    "GPT2LMHeadModel": {
        "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": LONG,
    },
    "BloomForCausalLM": {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "MptForCausalLM": {
        "vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": LONG,
    },
}  # fmt: skip
"""Small sizes of each architecture."""
YARN = {"factor": 4.0, "beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 1.5, "truncate": False}
LONGROPE = {
    "rope_type": "longrope", ORIGINAL: 16, "short_factor": [1.5, 2.5], "long_factor": [3.0, 5.0],
    "attention_factor": 1.5,
}  # fmt: skip
SCALINGS = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "yarn", ORIGINAL: 16, **YARN},
    {"rope_type": "llama3", "factor": 4.0, ORIGINAL: 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "linear", "factor": 1.0},
    LONGROPE,
    {key: value for key, value in LONGROPE.items() if key != "attention_factor"},
]
HELD = {
    "Phi3ForCausalLM": SCALINGS[-2:],
    "Ministral3ForCausalLM": [MINISTRAL | one for one in SCALINGS] + [
        MINISTRAL | SCALINGS[2] | {"attention_factor": None, "mscale": 1.2, "mscale_all_dim": 0.8},
    ],
}  # fmt: skip
"""The scalings of architectures that do not have all."""
TYPES = "full_attention", "sliding_attention"
BY_TYPE = {TYPES[0]: {"rope_theta": 700.0}, TYPES[1]: {"rope_type": "linear", "factor": 2.0}}
BY_LAYER_TYPE = "Gemma3ForCausalLM", "Olmo3ForCausalLM", "ModernBertForMaskedLM"
WINDOWS = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
# As transformers 4.54 wrote them.
OLDER = {
    "Gemma3ForCausalLM": {
        "rope_theta": 5e5, "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "cache_implementation": "hybrid",
    },
    # As the hub has it.
    "ModernBertForMaskedLM": {
        "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
        "layer_norm_eps": 1e-5, "norm_eps": 1e-5, "position_embedding_type": "absolute",
        "reference_compile": None, "repad_logits_with_grad": False,
    },
    "Cohere2ForCausalLM": {
        "rope_theta": 5e4, "rope_scaling": None, "sliding_window_pattern": 2,
        "cache_implementation": "hybrid",
    },
    # As the hub has it.
    "Exaone4ForCausalLM": {
        "rope_theta": 1e6, "layer_types": [*TYPES, *TYPES], "sliding_window_pattern": 4,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 16.0, ORIGINAL: 16, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    },
    "SmolLM3ForCausalLM": {"rope_theta": 2e6, "rope_scaling": None, "max_window_layers": 28},
    "GPTNeoXForCausalLM": {
        "rope_theta": 10000, "rotary_emb_base": 10000, "rotary_pct": 0.25, "partial_rotary_factor": 0.25,
    },
}  # fmt: skip
INSIDE = {
    "rope_type": ["su"], "type": ["linear"], "rope_theta": [500.0], "factor": [2, None], "mscale": [0.7],
    "partial_rotary_factor": [0.5, 1.0], ORIGINAL: [8, None], "beta_fast": [16, None], "beta_slow": [None],
    "attention_factor": [None], "truncate": [True, None], "high_freq_factor": [8], "low_freq_factor": [2],
    "llama_4_scaling_beta": [0.1, None],
    "short_factor": [[1.0], [1.2, 1.0]], "long_factor": [[4.0, 1], [4.0, "a"], None],
}  # fmt: skip
"""Other values of keys of `rope_parameters` and `rope_scaling`."""
TURNS = {
    "rope_theta": [500.0], "rotary_emb_base": [500], "rotary_pct": [0.5], "partial_rotary_factor": [0.5, 1.0],
    ORIGINAL: [8], "max_position_embeddings": [64], "head_dim": [8], "rope_scaling": SCALINGS[1:3],
    "rope_parameters": [*SCALINGS[:2], {"rope_type": "default", "rope_theta": 500.0}, BY_TYPE],
    "rope_local_base_freq": [500.0], "local_rope_theta": [500.0], "global_rope_theta": [500.0],
}  # fmt: skip
SEEN = {
    "sliding_window": [7], "use_sliding_window": [True], "max_window_layers": [2],
    "layer_types": [[TYPES[i % 2] for i in range(n)] for n in (2, 3, 4)], "sliding_window_pattern": [2, 1, 0],
    "local_attention": [9, 2, 1, 0], "global_attn_every_n_layers": [2, 1, 0],
    "no_rope_layers": [[0, 1, 1, 0]], "no_rope_layer_interval": [2],
}  # fmt: skip
ATTENTION = {
    "clip_qkv": 0.1, "softmax_scale": 0.1, "prefix_lm": True, "qk_ln": True, "alibi": False,
    "attn_pdrop": 0.5, "alibi_bias_max": 4, "attn_type": "multiquery_attention", "attn_impl": "flash",
}  # fmt: skip
VALUES = {
    **TURNS,
    **SEEN,
    "hidden_act": ["swish", "gelu", "relu"],
    "hidden_activation": ["gelu", "silu", "relu"],
    "classifier_activation": ["silu", "gelu_new"],
    "type_vocab_size": [1, 0],
    "position_embedding_type": ["relative_key"],
    "query_pre_attn_scalar": [40, 0],
    "activation_function": ["gelu", "gelu_fast", "relu", "silu"],
    "attn_config": [{key: value} for key, value in ATTENTION.items()],
    "num_key_value_heads": [2],
    "n_inner": [24],
    "dtype": ["float16"],
    "torch_dtype": ["float16"],
    "n_embed": [64],
    "seq_length": [64],
    "attn_logit_softcapping": [30.0],
}
"""Values of keys for which the type does not say them, of any architecture or of older files."""
NAMES = {"model_type", "architectures", "transformers_version"}


def config_class(name):
    return transformers.CONFIG_MAPPING[ARCHITECTURES[name].model_type]


def defaults_of(name):
    """The keys of a configuration class, with their defaults."""
    return {field.name: field.default for field in fields(config_class(name))}


def other_values(key, value):
    """Values that a key does not have: ones that make sense, or some of the same type; and null."""
    if key in VALUES:
        found = VALUES[key]
    elif isinstance(value, bool):
        found = [not value]
    elif isinstance(value, int | float):
        found = [2 * value or 3]
    else:
        found = [4, True] if value is None else ["other"]
    return [one for one in (*found, None) if one != value]


def written(name, sizes):
    """A configuration as the installed `transformers` saves it."""
    values = config_class(name)(**sizes).to_diff_dict()
    return json.loads(json.dumps(values | {"architectures": [name]}, default=str))


def cases(name):
    """Configurations, each with the key in which it differs from one that is imported; None for that one."""
    own = defaults_of(name)
    plain = {"architectures": [name], "model_type": ARCHITECTURES[name].model_type, **SIZES[name]}
    kinds = map(config_class, ARCHITECTURES)
    every = {key for kind in kinds for key in (*(one.name for one in fields(kind)), *kind.attribute_map)}
    begun = [
        (plain, sorted({*every, *VALUES} - NAMES)),
        (written(name, SIZES[name]), TURNS if "rope_parameters" in own else ()),
        (plain | OLDER.get(name, {}), ()),
    ]
    if "sliding_window" in own:
        windows = {key: value for key, value in WINDOWS.items() if key in own}
        begun += [(plain | windows, SEEN), (written(name, SIZES[name] | windows), SEEN)]
    for values, others in begun:
        yield None, values
        for key in values.keys() - NAMES:
            yield key, without(values, key)
        for key in others:
            for other in other_values(key, (own | values).get(key)):
                yield key, {**values, key: other}
    scalings = HELD.get(name, SCALINGS) if "rope_parameters" in own else ()
    kinds = TYPES if name in BY_LAYER_TYPE else (None,)
    for number, (scaling, kind) in enumerate(product(scalings, kinds), [*ARCHITECTURES].index(name)):
        if kind:  # where it is not truncated, it is refused
            scaling = {key: value for key, value in scaling.items() if key != "truncate"}

        def turned(scaling, kind=kind):
            return {"rope_parameters": {kind: scaling} if kind else scaling}

        for form in (turned, lambda scaling: {"rope_scaling": scaling}):
            yield None, {**plain, **form(scaling)}
            for key in scaling:
                yield key, {**plain, **form(without(scaling, key))}
        # Architectures share what reads these: each key with each scaling in a third of them.
        for key in [*INSIDE][number % 3 :: 3]:
            for other in INSIDE[key]:
                yield key, {**plain, **turned({**scaling, key: other})}
        for key in [*TURNS][number % 3 :: 3] if scaling in SCALINGS[1:3] else ():
            for other in other_values(key, None):
                yield key, {**plain, **turned(scaling), key: other}


def without(values, key):
    return {other: value for other, value in values.items() if other != key}


WIDTHS = {  # of a head, and shares of it: int(width * share) dimensions are rotated
    16: (0.25, 0.3, 0.27), 10: (0.35, 0.45, 0.65), 100: (0.29, 0.07, 0.57), 50: (0.58, 0.46),
}  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
def test_a_part_of_a_head_is_cut_as_in_transformers_or_refused_by_its_key(width, tmp_path):
    name = "GPTNeoXForCausalLM"
    sizes = SIZES[name] | {"hidden_size": 2 * width}
    publish_drawn(name, sizes, tmp_path)
    plain = {"architectures": [name], "model_type": "gpt_neox", **sizes}
    for share in WIDTHS[width]:
        expected = "refused" if int(width * share) % 2 else "equal"
        inside = {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": share}}
        assert verdict("rotary_pct", plain | {"rotary_pct": share}, tmp_path) == expected, share
        assert verdict("rope_parameters.partial_rotary_factor", plain | inside, tmp_path) == expected, share


def test_a_yarn_block_without_a_factor_has_the_ratio_of_its_lengths(tmp_path):
    for name in ("LlamaForCausalLM", "GPTNeoXForCausalLM"):
        publish_drawn(name, SIZES[name], tmp_path)
        plain = {"architectures": [name], "model_type": ARCHITECTURES[name].model_type, **SIZES[name]}
        for original in (16, 8):
            block = {"rope_type": "yarn", "factor": None, ORIGINAL: original}
            assert verdict(None, plain | {"rope_parameters": block}, tmp_path) == "equal"
        block = {"rope_type": "yarn", "factor": None, ORIGINAL: 2 * LENGTH}
        assert verdict("factor", plain | {"rope_parameters": block}, tmp_path) == "refused"


def test_the_tables_of_keys_have_the_defaults_of_transformers():
    for name, architecture in ARCHITECTURES.items():
        table = {key: value for key, value in architecture.defaults.items() if value is not REQUIRED}
        own = defaults_of(name)
        assert {key: own.get(key, value) for key, value in table.items()} == table
        unlisted = own.keys() - architecture.defaults.keys() - NO_CHANGE
        # These are refused unless they are null, false or empty.
        assert not any(own[key] for key in unlisted), name
        theta = config_class(name).default_theta
        keys = ("rope_theta", "rope_local_base_freq"), ("global_rope_theta", "local_rope_theta")
        thetas = tuple(table.get(keys[0][i], table.get(keys[1][i], 1e4)) for i in (0, 1))
        assert thetas == ((theta["global"], theta["local"]) if isinstance(theta, dict) else (theta, 1e4))


def model_of(config):
    causal = type(config).__name__ not in ("ModernBertConfig", "BertConfig")
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM
    return auto.from_config(config, dtype=torch.float32)


def publish_drawn(name, sizes, folder):
    """Save a model of an architecture, so that its folder has weights to find."""
    model_of(config_class(name)(**sizes)).save_pretrained(folder)


@torch.no_grad()
def verdict(key, values, folder):
    """`equal`, `refused` (by the name of the key), `unreadable` by `transformers` too, or the fault."""
    file = folder / "config.json"
    file.write_text(json.dumps(values))
    try:
        read_published(str(folder))
        torch.manual_seed(0)
        try:
            config = transformers.AutoConfig.from_pretrained(folder)
            theirs = model_of(config).eval()
            for parameter in theirs.parameters():
                parameter += 0.2 * torch.randn_like(parameter)
            lengths = {SHORT, LONG if key is None or key in {*TURNS, *SEEN, *INSIDE} else SHORT}
            tokens = [torch.randint(VOCABULARY, (1, length)) for length in lengths]
            uncached = {"use_cache": False} if "CausalLM" in type(theirs).__name__ else {}
            wanted = [theirs(ids, return_dict=True, **uncached).logits for ids in tokens]
            theirs.save_pretrained(folder)
        except Exception:  # of the configuration, of a layer, of an operation: many kinds
            return "unreadable"
        file.write_text(json.dumps(values))
        published = read_published(str(folder))
        task = build_task(
            recipe_of(published, "ours", folder / "tokenizer.json"), published.config.vocab_size
        )
        load_weights(task, published)
    except InputError as error:
        return "refused" if key is not None and key in str(error) else f"refused: {error}"
    task.eval()
    pairs = zip(tokens, wanted, strict=True)
    found = {
        ids.shape[1]: ((task.model(ids) - one).abs().max() / one.abs().max()).item() for ids, one in pairs
    }
    near = BY_KEY.get(published.name, NEAR)
    return "equal" if max(found.values()) < near else f"differs by {found}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_key_is_read_as_transformers_does_or_refused(name, tmp_path, capsys):
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    publish_drawn(name, SIZES[name], tmp_path)
    different = {
        json.dumps(values, sort_keys=True): (key, values) for key, values in reversed([*cases(name)])
    }
    counts, wrong = Counter(), []
    for key, values in different.values():
        found = verdict(key, values, tmp_path)
        right = found in ("equal", "refused", "unreadable") if key else found == "equal"
        counts[found if right else "wrong"] += 1
        if not right:
            wrong.append(f"{key}: {found}: {values}")
    with capsys.disabled():
        print(f"\n{name}: {dict(counts)}")
    assert not wrong, "\n".join(wrong)
