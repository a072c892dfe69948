"""End tokens among the targets: counted by default, and left out with `evaluate.end_tokens: false`."""

import math

import pytest
from known_windows import LENGTHS, TEXT_PROTOCOLS, contexts, total_loss, whole_stream
from test_repeats import repeats_of

from zoo.evaluation.protocols.protocol import build_protocol

LEFT_OUT = "evaluate.end_tokens=false"


def targets_of(task, source, protocol):
    return build_protocol(protocol, task.recipe.evaluate).plan(task, source, LENGTHS)[0].targets


@pytest.mark.parametrize("protocol", TEXT_PROTOCOLS)
def test_bits_per_byte_are_those_of_the_targets_that_have_bytes(text_recipe, counting, measure, protocol):
    sets = "evaluate.targets=5", "evaluate.stride=3"
    task, source = counting(text_recipe("decoder", "many", *sets, LEFT_OUT))
    stream, end, lowest = whole_stream(source), source.tokenizer.end_token, 0
    for row in measure(protocol, task, source, LENGTHS):
        scored = contexts(protocol, source, task.recipe.evaluate, row["length"], LENGTHS)
        if protocol == "per_position":
            scored = {t: c for t, c in scored.items() if lowest < c <= row["length"]}
            lowest = row["length"]
        losses = total_loss(task.model, stream, {t: c for t, c in scored.items() if stream[t] != end})
        nats, sizes = sum(losses.values()), source.units.bytes_of(stream[list(losses)].numpy()).sum()
        assert row["tokens"] == len(losses)
        assert row["bits_per_byte"] == pytest.approx(nats / sizes / math.log(2), rel=1e-6)
        assert row["parameters"]["end_tokens"] is False


@pytest.mark.parametrize("protocol", [*TEXT_PROTOCOLS, "repeats"])
def test_targets_state_how_many_of_them_are_end_tokens(text_recipe, counting, protocol):
    sets = "evaluate.targets=5", "evaluate.rare_below=1000000"
    counted = targets_of(*counting(text_recipe("decoder", "many", *sets)), protocol)
    left_out = targets_of(*counting(text_recipe("decoder", "many", *sets, LEFT_OUT)), protocol)
    assert left_out.end_tokens == 0 < counted.end_tokens
    assert left_out.count == counted.count - counted.end_tokens
    assert left_out.digest != counted.digest


def test_a_repeated_bigram_that_ends_a_document_is_left_out(text_recipe, counting, measure):
    sets = "evaluate.max_tokens=400", "evaluate.rare_below=1000000"
    task, source = counting(text_recipe("decoder", "many", *sets, LEFT_OUT))
    stream = whole_stream(source)
    found = {
        at: own
        for at, own in repeats_of(source, 400, 50, 10**6).items()
        if stream[at] != source.tokenizer.end_token
    }
    losses = total_loss(task.model, stream, {at: context for at, (_, context) in found.items()})
    lowest, rows = 0, measure("repeats", task, source, [50])
    for row in rows:
        own = [losses[at] for at, (distance, _) in found.items() if lowest < distance <= row["length"]]
        lowest = row["length"]
        assert row["loss_nats"] == pytest.approx(sum(own) / len(own), rel=1e-6)
    assert sum(row["tokens"] for row in rows) == len(found)
