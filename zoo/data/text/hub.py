"""Fetching WikiText from the Hugging Face hub, with an end to the waiting when there is no network."""

from __future__ import annotations

import functools
import logging
import threading
from contextlib import contextmanager

REPOSITORY = "Salesforce/wikitext"
PATIENCE = 5.0  # seconds for the hub's first answer


class FetchFailed(Exception):
    """The hub gave nothing; the text says why in a line."""


@functools.lru_cache(maxsize=1)
def fetch(configuration: str):
    """The `datasets.DatasetDict` of a configuration such as `wikitext-2-v1`: from the hub, or from what
    `datasets` kept of an earlier fetch. Raises FetchFailed."""
    try:
        import datasets
    except ImportError:
        raise FetchFailed("the package `datasets` is not installed") from None
    unreachable = why_unreachable()
    with hushed("datasets", "huggingface_hub", "httpx", "urllib3"), offline(unreachable is not None):
        try:
            return datasets.load_dataset(REPOSITORY, configuration)
        except Exception as error:  # of the twenty kinds that are raised, all mean: it did not come
            raise FetchFailed(unreachable or brief(error)) from error


def why_unreachable() -> str | None:
    """None if the hub answers that it has the corpus; else why not.

    Asked in a thread, because a look-up of a host name knows no time limit: `datasets` by itself would try
    for 24 s to minutes and report every attempt, also where a proxy answers each with an error of its own.
    """
    import huggingface_hub

    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    answer: list[str | None] = []

    def ask() -> None:
        try:
            huggingface_hub.HfApi().dataset_info(REPOSITORY, timeout=PATIENCE)
            answer.append(None)
        except Exception as error:  # a network that is not there, or an answer that is not the hub's
            answer.append(brief(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    host = huggingface_hub.constants.ENDPOINT
    if not answer:
        return f"{host} did not answer within {PATIENCE:.0f} s"
    return f"{host} cannot be reached ({answer[0]})" if answer[0] else None


def brief(error: BaseException) -> str:
    """The first line of an error, cut to 160 characters."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:160]


@contextmanager
def offline(active: bool):
    """Let `datasets` look only at what it has on disk."""
    import datasets
    import huggingface_hub

    # Both read their flag at each call, but the environment variable only at import.
    modules = [huggingface_hub.constants, datasets.config]
    before = [module.HF_HUB_OFFLINE for module in modules]
    try:
        for module in modules:
            module.HF_HUB_OFFLINE = active or module.HF_HUB_OFFLINE
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value


@contextmanager
def hushed(*loggers: str):
    """Keep the retries and notices of these loggers from the console."""
    before = {name: logging.getLogger(name).level for name in loggers}
    try:
        for name in loggers:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
