"""Separate documents: a token sees its own document alone, on every path of attention."""

import pytest
import torch

from zoo.contract import LAWS
from zoo.contract.subject import subjects_with
from zoo.encodings.base import positions_by_document
from zoo.encodings.context import AttentionContext
from zoo.encodings.stack import build_encoding
from zoo.models.kernels import cpu_attention
from zoo.models.logit_scale import visible_keys
from zoo.models.plans import choose, flex

LENGTH, BEGIN = 24, 9
PATHS = {
    "fused on the CPU, blocks in training": {},
    "reference": {"kernel": "reference"},
    "plain PyTorch": {"applies": False},
    "recomputed": {"most_kept": 0},
    "small blocks": {"elements": 1},
    "encoder": {"kind": "encoder"},
}


def documents_of(batch):
    """The second document begins in row BEGIN; in the last sequence a third one begins in row 17."""
    documents = torch.zeros(batch, LENGTH, dtype=torch.long)
    documents[:, BEGIN:] = BEGIN
    documents[-1, 17:] = 17
    return documents


def assert_separate(model, tokens, gradients=True):
    """The second document reads like one that stands alone, and takes no gradient to the first."""
    row, documents = tokens(2, LENGTH), documents_of(2)
    for grad in {gradients, False}:
        with torch.set_grad_enabled(grad):
            got, alone = model(row, documents=documents)[0, BEGIN:], model(row[:1, BEGIN:])[0]
            packed = model(row)[0, BEGIN:]
        torch.testing.assert_close(got, alone, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(packed, alone, atol=1e-2)
    other = row.clone()
    other[:, :BEGIN] = (row[:, :BEGIN] + 1) % 7
    with torch.no_grad():
        changed, same = (model(one, documents=documents)[:, BEGIN:] for one in (other, row))
    torch.testing.assert_close(changed, same, rtol=1e-4, atol=1e-4)
    if not gradients:
        return
    into = []
    handle = model.tokens.register_forward_hook(
        lambda *of: into.append(of[2].detach().requires_grad_()) or into[-1]
    )
    model(row, documents=documents)[:, BEGIN:].square().sum().backward()
    handle.remove()
    assert into[0].grad[:, BEGIN:].abs().min() > 0 and into[0].grad[:, :BEGIN].abs().max() < 1e-4


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("encoding", ["alibi", "rope"])
def test_each_path_of_attention_separates_documents(path, encoding, model_of, tokens, monkeypatch):
    given = dict(PATHS[path])
    if not given.pop("applies", True):
        monkeypatch.setattr(cpu_attention, "applies", lambda q: False)
    monkeypatch.setattr(choose, "MOST_KEPT_ELEMENTS", given.pop("most_kept", choose.MOST_KEPT_ELEMENTS))
    monkeypatch.setattr(choose, "BLOCK_ELEMENTS", given.pop("elements", choose.BLOCK_ELEMENTS))
    assert_separate(model_of(encoding, given.pop("kind", "decoder"), **given), tokens)


@pytest.mark.parametrize("encoding", ["alibi", "rope"])
def test_flex_attention_separates_documents(encoding, model_of, tokens, monkeypatch):
    monkeypatch.setattr(flex, "_compiled_alone", lambda function: function)
    # It has no backward pass on a CPU.
    assert_separate(model_of(encoding, kernel="flex"), tokens, gradients=False)


@pytest.mark.parametrize("name", ["fox", "cable"])
def test_sums_over_tokens_keep_their_digits_in_a_window_of_many_documents(name, size_of):
    """The terms of a document's keys are those of the document alone, however many come before it."""
    torch.manual_seed(0)
    encoding, (documents, size) = build_encoding(name, size_of()), (2048, 16)
    x = encoding.size.d_model**0.5 * torch.randn(1, documents * size, encoding.size.d_model)
    rows = torch.arange(documents * size)[None]

    def terms_of(features, begins):
        pos = torch.arange(features.shape[1])
        context = AttentionContext(pos, pos, features=features, documents=begins)
        last = context.queries(len(pos) - size, len(pos))
        q = torch.zeros(1, encoding.size.num_heads, size, encoding.size.head_dim)
        return encoding.score(q, q, last)[..., -size:], encoding.key_score(q, context)[..., -size:]

    with torch.no_grad():
        features = encoding.read(x)
        got = terms_of(features, rows // size * size)
        alone = terms_of(features[:, -size:], None)
    for term, expected in zip(got, alone, strict=True):
        torch.testing.assert_close(term, expected, rtol=0, atol=1e-5)


DYNAMIC, LONG = ({"name": "rope", "scaling": rule, "factor": 4.0} for rule in ("dynamic_ntk", "longrope"))
INTERPOLATED = {"name": "learned", "beyond": "interpolate"}
DEPEND_ON_LENGTH = [
    DYNAMIC,
    LONG,
    INTERPOLATED,
    {"name": "cape", "of": "sinusoidal", "centred": True},
    *(
        {"name": "randomized", "of": of, "evaluation": evaluation}
        for of in ("sinusoidal", "t5", DYNAMIC)
        for evaluation in ("draw", "spread", "plain")
    ),
    {"name": "randomized", "of": "rope", "draw": "layer"},
    {"name": "shape", "of": {**INTERPOLATED, "table_length": 600}},
    {"name": "interleave", "pattern": [DYNAMIC, {"name": "randomized", "of": "alibi"}]},
    {"name": "interleave", "pattern": [{"name": "randomized", "of": "t5"}, LONG]},
    [INTERPOLATED, LONG],
]


@pytest.mark.parametrize("spec", DEPEND_ON_LENGTH, ids=lambda spec: subjects_with(spec)[0].label)
def test_the_length_is_that_of_the_document(spec):
    law = next(one for one in LAWS if one.name == "separate documents are read alone")
    for subject in subjects_with(spec):
        found = law.try_on(subject)
        assert found.passed and found.share > 0, f"{subject}: {found.numbers}"


SIZES = [7, 1, 12, 7, 3, 10]


def placed(spec, size_of, training=True):
    """The encoding, and its positions of documents of SIZES in one window, a tensor for each document."""
    encoding = build_encoding(spec, size_of()).train(training)
    ids = torch.cat([torch.arange(size) for size in SIZES])[None]
    torch.manual_seed(5)
    return encoding, positions_by_document(encoding, ids)[0].split(SIZES)


@pytest.mark.parametrize(("spec", "low", "high"), [
    ({"name": "shape", "of": "sinusoidal", "max_offset": 500}, 0, 499),
    ({"name": "cape", "of": "sinusoidal", "max_local_shift": 0, "max_scale": 1}, -5, 5),
], ids=["shape", "cape"])  # fmt: skip
def test_each_document_is_shifted_by_a_draw_of_its_own(spec, low, high, size_of):
    _, parts = placed(spec, size_of)
    shifts = [part - torch.arange(len(part)) for part in parts]
    assert all(torch.allclose(shift, shift[:1], atol=1e-5) for shift in shifts)
    assert len({float(shift[0]) for shift in shifts}) == len(SIZES)
    assert all(low <= shift[0] <= high for shift in shifts)


@pytest.mark.parametrize("training", [True, False])
def test_randomized_draws_as_for_a_document_that_stands_alone(training, size_of):
    encoding, parts = placed({"name": "randomized", "of": "rope"}, size_of, training)
    for part in parts:
        torch.manual_seed(5)
        assert torch.equal(part, encoding.positions(torch.arange(len(part)), 1))


def test_visible_keys_are_those_of_the_document(model_of, tokens):
    model, seen = model_of("none"), []
    handle = model.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[2][0]))
    model(tokens(2, LENGTH), documents=documents_of(2))
    handle.remove()
    assert visible_keys(seen[0])[1].tolist() == [*range(1, 10), *range(1, 9), *range(1, 8)]
    assert seen[0].q_pos[1].tolist() == [*range(9), *range(8), *range(7)]


@pytest.mark.parametrize(
    ("encoding", "limit"), [("learned", 17), ({"name": "xpos", "scale_base": 0.3}, 19)], ids=str
)
def test_a_window_may_be_longer_than_the_encoding_if_each_document_fits(encoding, limit, model_of, tokens):
    model, row = model_of(encoding), tokens(1, 2 * limit + 1)
    assert model.encoding.max_length == limit
    begins = torch.tensor([[0] * limit + [limit] * limit + [2 * limit]])
    got = model(row, documents=begins)
    torch.testing.assert_close(got[:, limit : 2 * limit], model(row[:, limit : 2 * limit]))
    with pytest.raises(ValueError, match=f"a sequence of {limit + 1} tokens"):
        model(row, documents=begins.clamp(max=limit))


def test_documents_go_without_padding(model_of, tokens):
    row = tokens(2, LENGTH)
    with pytest.raises(ValueError, match="no padding"):
        model_of("rope")(row, torch.ones_like(row, dtype=torch.bool), documents=documents_of(2))
