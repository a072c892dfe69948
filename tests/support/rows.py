"""Rows as an evaluation gives them, with numbers chosen by a test."""

TRAINED = 64


def text_row(length=64, value=1.5, **more):
    """A row of a text; `value` in bits per byte, with an interval of 0.1 to both sides."""
    measured = {} if "note" in more else {
        "documents": 8, "tokens": 4096, "targets": "0a0a0a",
        "bits_per_byte": value,
        "bits_per_byte_low": None if value is None else value - 0.1,
        "bits_per_byte_high": None if value is None else value + 0.1,
        "loss_nats": None if value is None else 2 * value,
        "perplexity": None if value is None else 10 * value,
        "tokens_per_second": 12345.6, "peak_memory_mb": 789.1,
    }  # fmt: skip
    return about(length, "nonoverlapping") | measured | more


def task_row(length=64, value=0.5, **more):
    """A row of a task with an answer."""
    measured = {} if "note" in more else {
        "examples": 100, "tokens": 100 * length, "targets": "0b0b0b", "accuracy": value,
        "accuracy_low": value - 0.05, "accuracy_high": value + 0.05, "token_accuracy": (1 + value) / 2,
    }  # fmt: skip
    return about(length, "accuracy") | measured | more


def about(length, protocol):
    return {
        "run": "tiny", "encoding": "alibi", "checkpoint": "checkpoints/last.ckpt", "step": 10, "seed": 0,
        "protocol": protocol, "parameters": {}, "length": length, "train_length": TRAINED,
    }  # fmt: skip
