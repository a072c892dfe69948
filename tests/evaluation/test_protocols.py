"""Protocols against models whose losses are known."""

import math
import threading
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from known_windows import (
    LENGTHS,
    TEXT_PROTOCOLS,
    contexts,
    documents_of,
    recorded,
    total_loss,
    whole_stream,
)

from zoo.data.text.tokenizer import END
from zoo.errors import InputError
from zoo.evaluation.interval import interval_of_ratio
from zoo.evaluation.protocols import text
from zoo.evaluation.protocols.nonoverlapping import side_by_side
from zoo.evaluation.protocols.per_position import bin_ends
from zoo.evaluation.protocols.protocol import Execution, OutOfTime, build_protocol
from zoo.evaluation.protocols.sliding import overlapping
from zoo.launch.team import alone
from zoo.tasks import build_task

CPU = torch.device("cpu")
# Every protocol


COARSE = ("evaluate.stride=3", "evaluate.targets=5", "evaluate.bins_per_octave=1")


@pytest.mark.parametrize("protocol", TEXT_PROTOCOLS)
@pytest.mark.parametrize(
    "made, sets", [("bigram", COARSE), ("trigram", ()), ("counting", COARSE), ("counting", ())]
)
def test_the_loss_of_a_known_model_is_exact(request, text_recipe, measure, protocol, made, sets):
    recipe = text_recipe("decoder", "many", *sets)
    task, source = request.getfixturevalue(made)(recipe)
    stream = whole_stream(source)
    rows = measure(protocol, task, source, LENGTHS)
    if protocol == "per_position":
        scored = contexts(protocol, source, recipe.evaluate, None, LENGTHS)
        lowest = 0
        assert [row["length"] for row in rows] == ([16, 32, 50] if sets else [16, 23, 32, 45, 50])
        for row in rows:
            inside = {t: c for t, c in scored.items() if lowest < c <= row["length"]}
            losses = total_loss(task.model, stream, inside)
            assert row["tokens"] == len(inside)
            assert row["loss_nats"] == pytest.approx(np.mean([*losses.values()]), rel=1e-6)
            lowest = row["length"]
        assert sum(row["tokens"] for row in rows) == 200
        return
    assert [row["length"] for row in rows] == LENGTHS
    for row in rows:
        scored = contexts(protocol, source, recipe.evaluate, row["length"], LENGTHS)
        losses = total_loss(task.model, stream, scored)
        assert row["tokens"] == len(scored) == (row["tokens"] if protocol == "fixed_targets" else 200)
        assert row["loss_nats"] == pytest.approx(np.mean([*losses.values()]), rel=1e-6)
        assert row["perplexity"] == pytest.approx(math.exp(row["loss_nats"]))


@pytest.mark.parametrize("protocol", TEXT_PROTOCOLS)
def test_the_same_targets_are_scored_at_every_length(text_recipe, bigram, measure, protocol):
    def digests(*sets, lengths=LENGTHS):
        rows = measure(protocol, *bigram(text_recipe("decoder", "many", *sets)), lengths)
        if protocol != "per_position":
            # A bigram knows nothing of windows: the same targets are the same loss.
            assert len({(row["tokens"], row["loss_nats"], row["bits_per_byte_low"]) for row in rows}) == 1
        assert len({row["targets"] for row in rows}) == 1
        return rows[0]["targets"]

    first = digests()
    assert first == digests("seed=3", "evaluate.batch_tokens=1000") == digests(lengths=[8, 50])
    assert first != digests("evaluate.max_tokens=400")
    assert first != digests("data.vocab_size=280")


@pytest.mark.parametrize("protocol", ["nonoverlapping", "sliding", "per_position"])
@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_the_beginning_of_every_document_counts(text_recipe, bigram, measure, protocol, kind):
    """Five of twelve long documents lie within 100 tokens; each is closed by an end token without a loss."""
    sets = "data.whole=true", "evaluate.max_tokens=100", "data.tokenizer=characters"
    whole, cut = ((*sets, *more) for more in ((), ("evaluate.max_tokens_per_document=20",)))
    first = measure(protocol, *bigram(text_recipe(kind, "few", *whole)), [8, 50])[0]
    task, source = bigram(text_recipe(kind, "few", *cut))
    rows = measure(protocol, task, source, [8, 50])
    stream, end = source.stream("valid"), source.tokenizer.end_token
    tokens = [token for start in stream.document_starts for token in (*stream[start : start + 20], end)]
    for row in rows if protocol != "per_position" else ():
        assert row["documents"] == 5 and first["documents"] == 1
        if kind == "decoder":
            pairs = [pair for pair in pairwise(map(int, tokens[:101])) if pair[1] != end]
            losses = [-task.model.table[pair].item() for pair in pairs]
            assert row["tokens"] == len(losses) == 96
            assert row["loss_nats"] == pytest.approx(np.mean(losses), rel=1e-6)
    assert {row["targets"] for row in rows} != {first["targets"]}
    assert rows[0]["parameters"]["max_tokens_per_document"] == 20


def test_protocols_that_score_the_same_say_so(text_recipe, bigram, measure):
    task, source = bigram(text_recipe("decoder", "many"))
    rows = {p: measure(p, task, source, [16])[0]["targets"] for p in TEXT_PROTOCOLS}
    assert rows["nonoverlapping"] == rows["sliding"] == rows["per_position"] != rows["fixed_targets"]


def test_the_tokens_announced_beforehand_are_those_read(text_recipe, trigram):
    task, source = trigram(text_recipe("decoder", "many"))
    for protocol in TEXT_PROTOCOLS:
        plans = build_protocol(protocol, task.recipe.evaluate).plan(task, source, LENGTHS)
        for one in (one for plan in plans for one in plan.lengths):
            read = []
            one.score(Execution(alone(CPU), read.append))
            assert sum(read) == one.tokens > 0


def test_batches_and_logits_hold_no_more_tokens_than_allowed(text_recipe, bigram, measure, monkeypatch):
    monkeypatch.setattr(text, "LOGIT_TOKENS", 10)
    task, source = bigram(text_recipe("decoder", "many", "evaluate.batch_tokens=40", "evaluate.lengths=[16]"))
    expected = [measure(protocol, task, source, [16]) for protocol in TEXT_PROTOCOLS]
    batches, logits = [], []

    class Sized(type(task.model)):
        def hidden(self, tokens):
            batches.append(tokens.numel())
            return super().hidden(tokens)

        def unembed(self, hidden):
            logits.append(len(hidden))
            return super().unembed(hidden)

    task.model = Sized(source.vocab_size)
    assert [measure(protocol, task, source, [16]) for protocol in TEXT_PROTOCOLS] == expected
    assert max(batches) == 32 and max(logits) == 10


class Member:
    """One of several processes, played by a thread."""

    device = CPU

    def __init__(self, rank, size, table, barrier):
        self.rank, self.size, self.table, self.waiting = rank, size, table, barrier

    def gather(self, own):
        self.table[self.rank] = own
        self.waiting.wait(30)
        gathered = list(self.table)
        self.waiting.wait(30)
        return gathered


def together(size, work):
    """The results, or errors, of `work(member)` in each of several processes."""
    table, barrier, results = [None] * size, threading.Barrier(size), [None] * size

    def run(rank):
        try:
            results[rank] = work(Member(rank, size, table, barrier))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def at_16(task, source):
    (plan,) = build_protocol("nonoverlapping", task.recipe.evaluate).plan(task, source, [16])
    return plan.lengths[0]


def test_several_processes_give_the_rows_of_one(text_recipe, counting, measure):
    task, source = counting(text_recipe("decoder", "many"))

    def rows(team=None):
        return [measure(protocol, task, source, LENGTHS, team=team) for protocol in TEXT_PROTOCOLS]

    expected = rows()
    assert all(one == expected for one in together(3, rows))


def test_each_process_reads_its_share(text_recipe, bigram):
    task, source = bigram(text_recipe())
    read = {}

    def work(member):
        real = task.model.hidden
        tokens_read = []

        class Recorded(type(task.model)):
            def hidden(self, tokens):
                tokens_read.extend(tokens[:, 0].tolist())
                return real(tokens)

        own = type(task)(recipe=task.recipe, model=Recorded(source.vocab_size), card={})
        advanced = []
        at_16(own, source).score(Execution(member, advanced.append))
        read[member.rank] = tokens_read
        return sum(advanced)

    # Each one's bar shows the work of all.
    assert together(2, work) == [200, 200]
    assert abs(len(read[0]) - len(read[1])) <= 4 and len(read[0]) + len(read[1]) == 13


def test_a_lack_of_memory_in_one_process_is_one_in_all(text_recipe, bigram):
    task, source = bigram(text_recipe())

    def work(member):
        class Greedy(type(task.model)):
            def hidden(self, tokens):
                if member.rank == 1:
                    torch.empty(1 << 60)
                return super().hidden(tokens)

        own = type(task)(recipe=task.recipe, model=Greedy(source.vocab_size), card={})
        return at_16(own, source).score(Execution(member, lambda n: None))

    assert [type(error) for error in together(2, work)] == [torch.OutOfMemoryError] * 2


@pytest.mark.parametrize("slow", [(1,), (0, 1)])
def test_processes_stop_together_when_one_is_out_of_time(text_recipe, bigram, slow):
    task, source = bigram(text_recipe())
    planned = at_16(task, source)

    def work(member):
        asked = iter([True, False])
        has_time = (lambda: next(asked)) if member.rank in slow else lambda: True
        return planned.score(Execution(member, lambda n: None, has_time))

    assert [type(error) for error in together(2, work)] == [OutOfTime] * 2


# Windows side by side


def test_bytes_and_words_are_those_of_the_text(text_recipe, bigram, measure):
    task, source = bigram(text_recipe())
    stream = source.stream("valid")
    row = measure("nonoverlapping", task, source, [16])[0]
    total = row["loss_nats"] * row["tokens"]
    decoded = source.tokenizer.decode(stream[1:201])
    assert "�" not in decoded and END not in decoded, "choose another cut of the text"
    num_bytes = len(decoded.encode())
    assert row["bits_per_byte"] == pytest.approx(total / math.log(2) / num_bytes)
    before = source.tokenizer.decode(stream[:1])
    begun = not before[-1].isspace() and not decoded[0].isspace()
    num_words = len(decoded.split()) - begun
    assert row["word_perplexity"] == pytest.approx(math.exp(total / num_words))


def test_bytes_are_those_of_the_targets_wherever_they_lie(text_recipe, bigram, measure):
    task, source = bigram(text_recipe("decoder", "many", "evaluate.targets=5", "evaluate.lengths=[8]"))
    row = measure("fixed_targets", task, source, [8])[0]
    num_bytes = 0
    for first, last in documents_of(source):
        if first < 200 and last - first >= 8:
            num_bytes += len(source.tokenizer.decode(source.stream("valid")[last - 4 : last]).encode())
    assert row["bits_per_byte"] * num_bytes * math.log(2) == pytest.approx(row["loss_nats"] * row["tokens"])


def test_hidden_tokens_are_the_same_at_every_length(text_recipe, bigram, measure):
    task, source = bigram(text_recipe("encoder"))
    hidden, rows = [], []
    for length in (8, 12, 50, 64, 200):
        seen = recorded(task, source)
        rows += measure("nonoverlapping", task, source, [length])
        assert max(map(len, seen)) == length
        hidden.append(torch.cat(seen))
    assert all(torch.equal(one, hidden[0]) for one in hidden)
    assert len({(row["tokens"], row["loss_nats"], row["targets"]) for row in rows}) == 1
    assert 10 < rows[0]["tokens"] < 60  # about 15 % of 200


def test_masked_targets_are_the_hidden_tokens_only(text_recipe, bigram, measure):
    task, source = bigram(text_recipe("encoder"))
    row = measure("nonoverlapping", task, source, [16])[0]
    assert "bits_per_byte" not in row and "word_perplexity" not in row
    block = source.dataset("valid", length=200)[0]
    scored = block["targets"] >= 0
    losses = -task.model.table[block["tokens"][scored], block["targets"][scored]]
    assert row["loss_nats"] == pytest.approx(losses.mean().item(), rel=1e-6)
    others = bigram(
        text_recipe("encoder", "few", "task={name: masked_language_modelling, mask_fraction: 0.3}")
    )
    assert measure("nonoverlapping", *others, [16])[0]["targets"] != row["targets"]


def test_a_hopeless_loss_stays_a_number(text_recipe, bigram, measure):
    task, source = bigram(text_recipe())
    task.model.table = task.model.table * 1000
    row = measure("nonoverlapping", task, source, [16])[0]
    assert 100 < row["loss_nats"] < math.inf and row["perplexity"] == math.inf
    assert 0 < row["bits_per_byte"] < math.inf


# Sliding windows


@pytest.mark.parametrize("encoding", ["alibi", "rope"])
def test_stride_1_is_evaluation_token_by_token(text_recipe, bigram, measure, encoding):
    recipe = text_recipe("decoder", "few", "evaluate.stride=1", f"model.encoding={encoding}")
    _, source = bigram(recipe)
    task = build_task(recipe, source.vocab_size).eval()
    stream = whole_stream(source)
    with torch.inference_mode():
        row = measure("sliding", task, source, [12])[0]
        losses = []
        for target in range(1, 201):
            logits = task.model(stream[None, max(0, target - 12) : target])[0, -1]
            losses.append(-logits.log_softmax(-1)[stream[target]].item())
    assert row["tokens"] == 200 and row["parameters"] == {"stride": 1}
    assert row["loss_nats"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_sliding_windows_are_of_one_length_and_score_each_token_once():
    for size, length, stride in ((10, 10, 3), (11, 4, 4), (200, 16, 8), (17, 16, 1), (3, 3, 1), (50, 7, 8)):
        made = overlapping(size, length, stride)
        assert set(made.stops - made.starts) == {length} and made.starts[0] == 0 and made.stops[-1] == size
        scored = [t for a, b in zip(made.scored, made.stops, strict=True) for t in range(a, b)]
        assert scored == list(range(size)) and (made.scored >= made.starts).all()
        assert (made.stops - made.scored)[1:].max(initial=0) <= stride


def test_a_stride_of_the_whole_window_is_side_by_side(text_recipe, counting, measure):
    task, source = counting(text_recipe("decoder", "many", "evaluate.stride=1.0", "evaluate.max_tokens=192"))
    aside, sliding = (measure(p, task, source, [16, 48])[0] for p in ("nonoverlapping", "sliding"))
    assert sliding["parameters"] == {"stride": 1.0}
    assert aside["loss_nats"] == sliding["loss_nats"] and aside["targets"] == sliding["targets"]


def test_a_stride_larger_than_a_window_is_wrong_input(text_recipe, bigram, measure):
    task, source = bigram(text_recipe("decoder", "few", "evaluate.stride=12"))
    with pytest.raises(InputError, match=r"evaluate.stride: a stride of 12 tokens .* windows of 8"):
        build_protocol("sliding", task.recipe.evaluate).validate(task.recipe.evaluate, [8, 16])
    assert "loss_nats" in measure("sliding", task, source, [12, 16])[0]


# Fixed targets


def test_short_documents_are_left_out_and_counted(text_recipe, bigram, measure):
    _, source = bigram(text_recipe("decoder", "many"))
    sizes = sorted(last - first + 1 for first, last in documents_of(source) if first < 200)
    # A window as long as a document has no target after its last token.
    for longest in (8, next(size for size in sizes if size > 8), 50):
        lengths = f"evaluate.lengths=[8, {longest}]"
        task, source = bigram(text_recipe("decoder", "many", "evaluate.targets=3", lengths))
        within = [(first, last) for first, last in documents_of(source) if first < 200]
        kept = [last for first, last in within if last - first + 1 >= longest + 1]
        for row in measure("fixed_targets", task, source, [8, longest]):
            assert row["documents"] == len(kept) and row["tokens"] == 3 * len(kept)
            assert row["documents_left_out"] == len(within) - len(kept)
            assert row["parameters"] == {"targets": 3, "longest": longest}
    assert 0 < len(kept) < len(within)
    seen, end = recorded(task, source), source.tokenizer.end_token
    measure("fixed_targets", task, source, [8, 20])
    assert seen and not any(end in window for window in seen)


def test_targets_are_no_more_than_the_shortest_length(text_recipe, bigram, measure):
    recipe = text_recipe("decoder", "many", "evaluate.lengths=[6, 20]")
    rows = measure("fixed_targets", *bigram(recipe), [6, 20])
    assert [row["parameters"]["targets"] for row in rows] == [6, 6]
    assert len({row["tokens"] / row["documents"] for row in rows}) == 1


def test_lengths_that_no_document_allows_leave_the_others(text_recipe, bigram, measure):
    _, source = bigram(text_recipe("decoder", "many"))
    largest = max(last - first + 1 for first, last in documents_of(source) if first < 200)
    lengths = [8, largest - 1, largest, 190]
    task, source = bigram(text_recipe("decoder", "many", f"evaluate.lengths={lengths}"))
    rows = measure("fixed_targets", task, source, lengths)
    assert [row["documents"] for row in rows[:2]] == [1, 1] and "loss_nats_low" in rows[0]
    assert rows[0]["loss_nats_low"] is None  # of one document
    assert all(f"lengths up to {largest - 1} can be scored" in row["note"] for row in rows[2:])
    assert rows[0] == measure("fixed_targets", task, source, lengths[:2])[0]
    assert all("can be scored" in row["note"] for row in measure("fixed_targets", task, source, [190]))
    assert rows[:1] == measure("fixed_targets", task, source, [8])  # whatever is asked for beside it


def test_lengths_that_the_documents_were_not_chosen_for_are_notes(text_recipe, bigram, measure):
    task, source = bigram(text_recipe("decoder", "many", "evaluate.lengths=[8, 12]"))
    rows = measure("fixed_targets", task, source, [4, 8, 13])
    assert ["note" in row for row in rows] == [True, False, True]
    assert "evaluate.targets" in rows[0]["note"] and "evaluate.lengths" in rows[2]["note"]
    assert len({row["targets"] for row in rows}) == 1


# The loss at each position


def test_bins_cover_the_window():
    for window, bins in product((1, 15, 16, 17, 65, 1000), (1, 2, 3, 40)):
        ends = bin_ends(window, bins)
        assert ends == sorted(set(ends)) and ends[-1] == window
        assert ends[0] == min(16, window)
        octaves = math.log2(max(window, 16) / 16)
        assert len(ends) <= bins * octaves + 2


def test_bins_of_an_encoding_that_depends_on_the_length_have_a_remark(text_recipe, counting, measure):
    task, source = counting(text_recipe("decoder", "many"))
    task.model.encoding.max_cached_length = 16
    long, short = (measure("per_position", task, source, [window]) for window in (50, 16))
    assert ["remark" in row for row in long] == [True, False, False, False, False]
    assert "sequences of up to 50" in long[0]["remark"] and "remark" not in short[0]


def test_the_longest_window_that_can_be_read_is(text_recipe, counting, measure):
    task, source = counting(text_recipe("decoder", "many"))
    task.model.encoding.max_length = 30
    rows = measure("per_position", task, source, [16, 24, 50, 10**6])
    assert [(row["length"], row.get("note", "")[:12], row["parameters"]["window"]) for row in rows] == [
        (10**6, "the encoding", 10**6), (50, "the encoding", 50), (16, "", 24), (23, "", 24), (24, "", 24),
    ]  # fmt: skip


# Intervals


def test_the_unit_of_an_interval_is_the_document_not_the_token_nor_the_window(text_recipe, trigram, measure):
    recipe = text_recipe("decoder", "many")
    task, source = trigram(recipe)
    row = measure("sliding", task, source, [16])[0]
    scored = contexts("sliding", source, recipe.evaluate, 16, [16])
    losses = total_loss(task.model, whole_stream(source), scored)
    sums = []
    for first, last in documents_of(source):
        own = [losses[target] for target in range(first, last + 1) if target in losses]
        raw = source.tokenizer.decode([t for t in whole_stream(source)[first : last + 1].tolist()
                                       if t != source.tokenizer.end_token])  # fmt: skip
        if own:
            sums.append((sum(own), len(own), len(raw.encode())))
    assert row["documents"] == len(sums) > 3
    low, high = interval_of_ratio(*np.array(sums).T[:2])
    assert (row["loss_nats_low"], row["loss_nats_high"]) == (pytest.approx(low), pytest.approx(high))
    for name in ("loss_nats", "perplexity", "bits_per_byte", "word_perplexity"):
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"]
    assert row["perplexity_low"] == math.exp(row["loss_nats_low"])
    units = row["units"]
    assert units["nats"] == pytest.approx([nats for nats, _, _ in sums])
    assert units["tokens"] == [n for _, n, _ in sums] and len(set(units["documents"])) == len(sums)
    bits = sum(units["nats"]) / math.log(2) / sum(units["bytes"])
    assert bits == pytest.approx(row["bits_per_byte"])


def test_few_documents_are_cut_into_blocks_of_the_longest_length(text_recipe, trigram, measure):
    recipe = text_recipe("decoder", "few", "evaluate.max_tokens=207")
    task, source = trigram(recipe)
    row = measure("nonoverlapping", task, source, [16])[0]
    scored = contexts("nonoverlapping", source, recipe.evaluate, 16, [16])
    losses = total_loss(task.model, whole_stream(source), scored)
    # Of 207 targets, where windows of 50 are the longest.
    bounds = [0, 52, 104, 156, 207]
    sums = [sum(losses[t + 1] for t in range(a, b)) for a, b in pairwise(bounds)]
    tokens = [b - a for a, b in pairwise(bounds)]
    units = row["blocks"].columns()
    assert units["blocks"] == [0, 1, 2, 3] and units["tokens"] == tokens
    assert units["nats"] == pytest.approx(sums)
    expected = interval_of_ratio(np.array(sums), np.array(tokens))
    assert (row["loss_nats_low"], row["loss_nats_high"]) == pytest.approx(expected)
    assert row["documents"] == 1 and "over 4 consecutive blocks of 51 tokens" in row["remark"]
    assert row["units"]["documents"] == [0] and row["units"]["nats"] == pytest.approx([sum(sums)])


def test_blocks_do_not_depend_on_shorter_lengths_and_many_documents_have_none(text_recipe, bigram, measure):
    few = bigram(text_recipe("decoder", "few", "evaluate.lengths=[6]"))
    (one,), (first, _) = (measure("nonoverlapping", *few, lengths) for lengths in ([6], [6, 5]))
    assert one == first and len(one["blocks"].blocks) == 16
    # The lengths of the recipe are for its own text.
    task, other = bigram(text_recipe("decoder", "few", "evaluate.lengths=[8, 50]"))
    for label, count in ((None, 4), ("novels", 16)):
        other.label = label
        (row,) = measure("nonoverlapping", task, other, [8])
        assert len(row["blocks"].blocks) == count
    many = bigram(text_recipe("decoder", "many", "evaluate.max_tokens=500", "evaluate.lengths=[8]"))
    row = measure("nonoverlapping", *many, [16])[0]
    assert 10 <= row["documents"] < 16 and "blocks" not in row and "remark" not in row
    # The ends of documents are all in one block here: the documents stay the units.
    sets = "evaluate.lengths=[150]", "evaluate.max_tokens=190"
    (row,) = measure("fixed_targets", *bigram(text_recipe("decoder", "few", *sets)), [150])
    assert row["documents"] == 1 and "blocks" not in row and row["loss_nats_low"] is None


# Splits


def test_the_test_split_is_another_measurement(text_recipe, bigram, measure):
    rows = {}
    for split in ("null", "valid", "test"):
        task, source = bigram(text_recipe("decoder", "many", f"evaluate.split={split}"))
        rows[split] = measure("nonoverlapping", task, source, [16])[0]
        stream = torch.from_numpy(source.stream("test")[:201].astype(np.int64))
    assert rows["valid"] == rows["null"] and rows["null"]["parameters"] == {}
    assert rows["test"]["parameters"] == {"split": "test"}
    assert rows["test"]["targets"] != rows["valid"]["targets"]
    losses = -task.model.table[stream[:-1], stream[1:]]
    assert rows["test"]["loss_nats"] == pytest.approx(losses.mean().item(), rel=1e-6)
    for protocol in TEXT_PROTOCOLS:
        assert measure(protocol, task, source, [16])[0]["parameters"]["split"] == "test"


def test_the_text_that_is_scored_has_no_more_than_there_is(text_recipe, bigram, measure):
    task, source = bigram(text_recipe("decoder", "many", "evaluate.max_tokens=100000"))
    num_tokens = len(source.stream("valid"))
    rows = measure("nonoverlapping", task, source, [16, num_tokens - 1, num_tokens])
    assert [row.get("tokens") for row in rows] == [num_tokens - 1, num_tokens - 1, None]
    assert "has only" in rows[2]["note"]
    # A length beyond max_tokens is a note, and changes nothing at the others.
    task, source = bigram(text_recipe("decoder", "many"))
    (alone,), (first, beyond) = (measure("nonoverlapping", task, source, at) for at in ([16], [16, 250]))
    assert alone == first and alone["tokens"] == 200
    assert "evaluate.max_tokens" in beyond["note"] and beyond["targets"] == first["targets"]
    assert side_by_side(7, 3).tokens == 7
