"""Tiny models of all architectures that can be imported, as `transformers` saves them."""

import warnings

import torch
import transformers

from zoo.data.text.tokenizer import train_tokenizer

VOCABULARY = 300
COMMON = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 32, "intermediate_size": 80,
}  # fmt: skip
GROUPED = {**COMMON, "num_key_value_heads": 2}
GPT2 = {"vocab_size": VOCABULARY, "n_positions": 64, "n_embd": 64, "n_layer": 3, "n_head": 4}
TEXTS = ["the cat sat on the mat and the dog on the log", "one two three four five six seven eight"]


def scaled(kind, **options):
    options |= {"rope_type": kind, "rope_theta": 500.0, "factor": 4.0}
    return {**COMMON, "rope_parameters": options}


PUBLISHED = {
    "llama": ("Llama", {**GROUPED, "rms_norm_eps": 1e-3}),
    "llama with biases": (
        "Llama",
        {**COMMON, "attention_bias": True, "mlp_bias": True, "head_dim": 24, "tie_word_embeddings": True},
    ),
    "llama 3": (
        "Llama",
        scaled("llama3", low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8),
    ),
    "llama by yarn": ("Llama", scaled("yarn", original_max_position_embeddings=8)),
    "llama by interpolation": ("Llama", scaled("linear")),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": 7}),
    "qwen2": ("Qwen2", GROUPED),
    "qwen2 with windows": (
        "Qwen2",
        {**GROUPED, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {**GROUPED, "head_dim": 24}),
    "smollm3": (
        "SmolLM3",
        {**GROUPED, "no_rope_layers": [1, 0, 1], "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0},
    ),
    "gemma 3": (
        "Gemma3",
        {
            **GROUPED,
            "num_hidden_layers": 4,
            "head_dim": 24,
            "query_pre_attn_scalar": 40,
            "sliding_window": 7,
            "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
            "attention_bias": True,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "olmo 2": ("Olmo2", {**GROUPED, "attention_bias": True}),
    "olmo 3": (
        "Olmo3",
        {
            **GROUPED,
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "rope_theta": 700.0,
                    "original_max_position_embeddings": 8,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
            },
        },
    ),
    "cohere 2": (
        "Cohere2",
        {
            **GROUPED,
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "logit_scale": 0.3,
            "attention_bias": True,
            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
        },
    ),
    "phi 3": (
        "Phi3",
        {
            **GROUPED,
            "original_max_position_embeddings": 24,
            "sliding_window": 40,
            "pad_token_id": 0,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 500.0,
                "partial_rotary_factor": 0.5,
                "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [1.0, 2.0, 3.0, 4.5],
            },
        },
    ),
    "exaone 4": (
        "Exaone4",
        {
            **GROUPED,
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "sliding_window_pattern": "LLG",
            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
        },
    ),
    "ministral 3": (
        "Ministral3",
        {
            **GROUPED,
            "head_dim": 24,
            "sliding_window": 20,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 500.0,
                "factor": 4.0,
                "original_max_position_embeddings": 8,
                "mscale": 1.0,
                "mscale_all_dim": 0.5,
                "llama_4_scaling_beta": 0.3,
            },
        },
    ),
    "pythia": ("GPTNeoX", COMMON),
    "neox in sequence": ("GPTNeoX", {**COMMON, "use_parallel_residual": False}),
    "neox with some biases": ("GPTNeoX", {**COMMON, "attention_bias": False}),
    "llama with some biases": ("Llama", {**GROUPED, "mlp_bias": True}),
    "gpt2": ("GPT2", GPT2),
    "bert": ("Bert", {**COMMON, "max_position_embeddings": 64}),
    "modernbert": (
        "ModernBert",
        {
            **COMMON,
            "local_attention": 8,
            "norm_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "classifier_bias": True,
            "layer_types": ["full_attention", *["sliding_attention"] * 2],
            "pad_token_id": 0,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "cls_token_id": 0,
            "sep_token_id": 0,
        },
    ),
    "bloom": ("Bloom", {"vocab_size": VOCABULARY, "hidden_size": 48, "n_layer": 3, "n_head": 6}),
    "mpt": (
        "Mpt",
        {"vocab_size": VOCABULARY, "d_model": 48, "n_layers": 3, "n_heads": 6, "max_seq_len": 64},
    ),
}
"""By name: the architecture and its configuration. BLOOM and MPT have 6 heads, not a power of two."""
HEADS = {"GPT2": "GPT2LMHeadModel", "ModernBert": "ModernBertForMaskedLM", "Bert": "BertForMaskedLM"}
CONFIGS = {"Gemma3": "Gemma3TextConfig"}


def publish(name, folder, **saving):
    """The model of `PUBLISHED`, saved in a folder with a tokenizer."""
    kind, options = PUBLISHED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, CONFIGS.get(kind, f"{kind}Config"))(**options)
        torch.manual_seed(0)
        model = getattr(transformers, HEADS.get(kind, f"{kind}ForCausalLM"))(config).eval()
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        model.save_pretrained(folder, **saving)
    train_tokenizer(TEXTS, VOCABULARY).save(folder / "tokenizer.json")
    return model
