"""The tables and masks that layers and blocks of queries share."""

import pytest
import torch

from zoo.models.plans import choose


def shared_after(model, row, monkeypatch):
    """The keys of all that a forward pass stores for its layers."""
    memo, spans_of = {}, model.encoding.contexts

    def watched(*given, **named):
        contexts = spans_of(*given, **named)
        memo.update({id(context.shared): context.shared for slot in contexts for context in slot})
        return contexts

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(model.encoding, "contexts", watched)
        model(row)
    return [key for one in memo.values() for key in one]


@pytest.mark.parametrize("name", ["rope", "t5", "fire", "fox", "path", "deberta", "cope", "shaw"])
def test_blocks_of_queries_leave_nothing_behind(name, model_of, tokens, monkeypatch):
    """Memory does not grow with the number of blocks."""
    model, row = model_of(name, length=97), tokens(1, 97)
    whole = shared_after(model, row, monkeypatch)
    # 16 is the smallest block: seven of them.
    monkeypatch.setattr(choose, "BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(choose, "BLOCK_ROWS", 16)
    assert len(shared_after(model, row, monkeypatch)) <= len(whole)


def test_layers_with_a_bias_of_their_own_keep_no_mask(model_of, tokens, monkeypatch):
    for spec, kept in (("alibi", 1), ("fire", 0), ({"name": "interleave", "pattern": ["alibi"]}, 0)):
        keys = shared_after(model_of(spec), tokens(1, 12), monkeypatch)
        assert len([key for key in keys if key[0] in ("mask", "line")]) == kept, spec
