"""The key/value cache: its memory, its rows, and decoding with it."""

import pytest
import torch
import transformers

from zoo.errors import InputError
from zoo.models.cache import Cache, Rows
from zoo.models.decoding import Sampling, decode

# Of each kind of rows that layers cache; `cached = uncached` for every encoding is a law of the contract.
ENCODINGS = ["rope", "pope", "t5", "path", ["rope", "fox"]]


def memory_of(cache):
    """The address of each tensor of each layer."""
    return [rows.all().data_ptr() for layer in cache.layers for rows in layer.rows.values()]


def test_rows_are_moved_only_when_there_is_no_room():
    rows, expected, addresses = Rows(1), torch.randn(2, 40, 3), []
    for start, part in zip((0, *range(5, 40)), expected.split([5, *[1] * 35], 1), strict=True):
        got = rows.append(part)
        assert torch.equal(got, expected[:, : start + part.shape[1]])
        addresses.append(got.data_ptr())
    # Room for 5, 10, 20 and 40 rows.
    assert len(set(addresses)) == 4
    assert addresses[-20] == addresses[-1] != addresses[-21]


def test_returned_rows_do_not_change():
    rows = Rows(0)
    before = [rows.append(torch.full((1,), float(i))) for i in range(9)]
    assert [one.tolist() for one in before] == [[float(i) for i in range(n + 1)] for n in range(9)]


@torch.no_grad()
def test_no_step_copies_the_cache(model_of, tokens):
    row = tokens(2, 13)
    for encoding in ENCODINGS:
        model = model_of(encoding)
        cache, addresses = Cache(model.num_layers, room=13), []
        for part in row.split([4, *[1] * 9], 1):
            model(part, cache=cache)
            addresses.append(memory_of(cache))
        assert all(one == addresses[0] for one in addresses), encoding


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_padding_may_begin_within_a_cached_sequence(encoding, model_of, tokens):
    model, row = model_of(encoding), tokens(3, 12)
    keep = torch.ones(3, 12, dtype=torch.bool)
    keep[1, 4:6] = keep[2, 4:7] = False
    cache = Cache(model.num_layers)
    steps = [model(row[:, :4], cache=cache), model(row[:, 4:7], keep[:, 4:7], cache)]
    together = torch.cat([*steps, *(model(part, cache=cache) for part in row[:, 7:].split(1, 1))], 1)
    torch.testing.assert_close(together[keep], model(row, keep)[keep], rtol=0, atol=1e-5)
    # The convolution of PaTH reads the row before a token, which is padding here.
    for i in range(3 if encoding != "path" else 1):
        alone = model(row[i : i + 1, keep[i]])[0]
        torch.testing.assert_close(together[i, keep[i]], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("encoding", ["rope", "fox"])
def test_a_gradient_goes_back_through_the_cache(encoding, model_of, tokens):
    model, row = model_of(encoding), tokens(2, 9)

    def gradients(out):
        model.zero_grad()
        out.square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected, cache = gradients(model(row)), Cache(model.num_layers)
    got = gradients(torch.cat([model(part, cache=cache) for part in row.split([5, 1, 3], 1)], 1))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_sequences_of_a_cache_are_reordered_for_beam_search(encoding, model_of, tokens):
    model, row, order = model_of(encoding), tokens(3, 12), torch.tensor([2, 0, 0])
    cache = Cache(model.num_layers)
    model(row[:, :5], cache=cache)
    model(row[:, 5:6], cache=cache)
    cache.select(order)
    row = torch.cat((row[order, :6], row[:, 6:]), 1)
    steps = [model(part, cache=cache) for part in row[:, 6:].split([1, 3, 1, 1], 1)]
    torch.testing.assert_close(torch.cat(steps, 1), model(row)[:, 6:], rtol=0, atol=1e-5)


def test_a_key_is_rotated_once(model_of, tokens):
    model, row = model_of("rope", num_layers=1), tokens(2, 9)
    rope, cache, rotated = model.encoding.layer(0).encodings[0], Cache(1), []
    rotate = rope.rotate
    rope.rotate = lambda q, k, context: rotated.append(k.shape[2]) or rotate(q, k, context)
    for part in row.split([6, 1, 2], 1):
        model(part, cache=cache)
    assert rotated == [6, 1, 2]
    assert set(cache.layers[0].rows) == {"values", "rotated keys"}


# Writing.


def written(model, row, **options):
    return torch.stack(list(decode(model, row, 10, **options)), 1)


@pytest.mark.parametrize("encoding", ["rope", "alibi", "fox"])
def test_the_likeliest_tokens_are_those_of_full_passes(encoding, model_of, tokens):
    model, row = model_of(encoding), tokens(3, 6)
    whole = row
    for _ in range(10):
        whole = torch.cat((whole, model(whole)[:, -1].argmax(-1, keepdim=True)), 1)
    assert torch.equal(written(model, row), whole[:, 6:])
    assert torch.is_grad_enabled()


def test_prompts_of_several_lengths_are_continued_as_each_alone(model_of, tokens):
    model, row = model_of("rope"), tokens(2, 8)
    keep = torch.arange(8) >= torch.tensor([[0], [3]])
    together = written(model, row, keep=keep)
    assert torch.equal(together[0], written(model, row[:1])[0])
    assert torch.equal(together[1], written(model, row[1:, 3:])[0])


def test_drawn_tokens_follow_the_generator_and_the_temperature(model_of, tokens):
    model, row = model_of("alibi"), tokens(2, 6)

    def drawn(seed, temperature):
        return written(
            model, row, sampling=Sampling(temperature), generator=torch.Generator().manual_seed(seed)
        )

    assert torch.equal(drawn(0, 1.0), drawn(0, 1.0))
    assert not torch.equal(drawn(0, 1.0), drawn(1, 1.0))
    assert torch.equal(drawn(0, 1e-4), written(model, row))


def test_the_end_of_a_table_is_an_error(model_of, tokens):
    model = model_of("learned")
    longest = model.encoding.max_length
    with pytest.raises(ValueError, match=f"ends at {longest}"):
        list(decode(model, tokens(1, longest - 2), 5))


def test_beyond_what_a_cache_allows_all_tokens_are_read_anew(model_of, tokens):
    model, row = model_of({"name": "rope", "scaling": "dynamic_ntk", "factor": 4}), tokens(2, 6)
    longest = model.encoding.max_cached_length
    keep = torch.arange(6) >= torch.tensor([[0], [2]])
    for options in ({}, {"keep": keep}):
        expected, padding = row, keep if options else None
        for _ in range(longest + 3):
            new = model(expected, padding)[:, -1].argmax(-1, keepdim=True)
            expected = torch.cat((expected, new), 1)
            padding = None if padding is None else torch.cat((padding, new >= 0), 1)
        assert torch.equal(torch.stack(list(decode(model, row, longest + 3, **options)), 1), expected[:, 6:])


def test_probabilities_of_a_draw_are_those_of_transformers():
    logits = 3 * torch.randn(4, 50)
    for sampling in (
        Sampling(), Sampling(0.3), Sampling(2.0, top_k=5), Sampling(1.0, top_k=1000),
        Sampling(1.0, None, 0.7), Sampling(0.7, 12, 0.9), Sampling(1.0, None, 1e-6), Sampling(1e-30),
        Sampling(1e6, 3, 0.5),
    ):  # fmt: skip
        warpers = [transformers.TemperatureLogitsWarper(sampling.temperature)]
        warpers += [transformers.TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
        warpers += [transformers.TopPLogitsWarper(sampling.top_p)] if sampling.top_p < 1 else []
        expected = transformers.LogitsProcessorList(warpers)(None, logits).softmax(-1)
        torch.testing.assert_close(sampling.probabilities(logits), expected)
        drawn = sampling.draw(logits.repeat(200, 1), torch.Generator().manual_seed(0)).view(200, 4)
        assert (expected.gather(1, drawn.T) > 0).all(), sampling


def test_numbers_out_of_range_are_reported_together():
    with pytest.raises(InputError) as error:
        Sampling(-1, 0, float("nan"))
    assert [problem.key for problem in error.value.problems] == ["temperature", "top_k", "top_p"]
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    assert Sampling(top_p=0.0).probabilities(logits).tolist() == [[0, 1, 0]]
