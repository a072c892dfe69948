"""Windows over a stream: next-token blocks and masked blocks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from zoo.data.blocks import NOT_SCORED, Blocks, MaskedBlocks
from zoo.data.draws import Draws, below, unit
from zoo.data.loader import EpochSampler, ResumableLoader
from zoo.data.text.tokens import TokenStream

END, MASK, VOCABULARY = 0, 1, 50


@pytest.fixture
def stream():
    tokens = (2 + below(Draws("test").words(4000), VOCABULARY - 2)).astype(np.uint16)
    tokens[::97] = END
    return tokens


def masked(stream, length=100, **keywords):
    settings = {"mask_fraction": 0.15, "seed": 0, "epoch": 0} | keywords
    return MaskedBlocks(stream, length, tokenizer=tokenizer({END, MASK}), **settings)


def tokenizer(special, end=END, mask=MASK):
    rows = [b"" if token in special else b"x" for token in range(VOCABULARY)]
    return SimpleNamespace(mask_token=mask, end_token=end, vocab_size=VOCABULARY, token_bytes=lambda: rows)


def test_blocks_tile_the_stream_and_targets_are_one_on(stream):
    for length in (1, 7, 100, 3999):
        blocks = Blocks(stream, length)
        tokens = torch.cat([block["tokens"] for block in blocks])
        targets = torch.cat([block["targets"] for block in blocks])
        used = len(blocks) * length
        assert len(stream) - 1 - used < length
        assert tokens.tolist() == stream[:used].tolist()
        assert targets.tolist() == stream[1 : used + 1].tolist()


def test_a_stream_shorter_than_a_block_has_none(stream):
    assert len(Blocks(stream[:100], 100)) == 0
    assert len(Blocks(stream[:101], 100)) == 1
    assert len(masked(stream[:99])) == 0
    with pytest.raises(IndexError):
        Blocks(stream[:100], 100)[0]


def test_targets_are_the_hidden_tokens(stream):
    data = masked(stream)
    for index, block in enumerate(data):
        original = torch.from_numpy(stream[index * 100 : index * 100 + 100].astype(np.int64))
        scored = block["targets"] != NOT_SCORED
        assert torch.equal(block["targets"][scored], original[scored])
        assert torch.equal(block["tokens"][~scored], original[~scored])
        assert not (original[scored] == END).any()


def test_the_fractions_of_masked_random_and_kept_tokens():
    for fraction in (0.15, 0.4):
        stream = np.full(200_000, 7, dtype=np.uint16)
        data = masked(stream, 1000, mask_fraction=fraction)
        batch = data.batch(range(len(data)))
        scored = batch["targets"] != NOT_SCORED
        tokens = batch["tokens"][scored]
        assert scored.double().mean().item() == pytest.approx(fraction, abs=0.005)
        assert (tokens == MASK).double().mean().item() == pytest.approx(0.8, abs=0.01)
        # One random token in 48 is the true one again.
        assert (tokens == 7).double().mean().item() == pytest.approx(0.1 + 0.1 / 48, abs=0.01)
        random = tokens[(tokens != MASK) & (tokens != 7)]
        assert random.min() == 2 and random.max() == VOCABULARY - 1


def test_random_tokens_are_all_those_with_bytes():
    # Tokens 0 and 1 are ordinary here, 7 is not in use, and the special ones come last.
    special = {7, VOCABULARY - 2, VOCABULARY - 1}
    stream = np.full(60_000, 5, dtype=np.uint16)
    data = MaskedBlocks(stream, 1000, 0.4, tokenizer(special, VOCABULARY - 2, VOCABULARY - 1), seed=0)
    drawn = set(data.batch(range(len(data)))["tokens"].flatten().tolist())
    assert drawn == set(range(VOCABULARY)) - special | {VOCABULARY - 1}


def test_masks_depend_on_seed_and_epoch_only(stream):
    def targets(epoch_set=None, **keywords):
        data = masked(stream, **keywords)
        if epoch_set is not None:
            data.set_epoch(epoch_set)
        return data.batch(range(len(data)))["targets"]

    assert torch.equal(targets(), targets())
    assert torch.equal(targets(epoch_set=1), targets(epoch=1))
    assert not torch.equal(targets(), targets(epoch_set=1))
    assert not torch.equal(targets(), targets(seed=1))
    assert torch.equal(targets(epoch=None), targets(epoch=None, epoch_set=5))


def test_same_targets_at_every_length(stream):
    def flat(length):
        data = masked(stream, length, epoch=None)
        return data.batch(range(len(data)))["targets"].flatten()

    short, long = flat(50), flat(400)
    assert torch.equal(short[: len(long)], long)


def test_draws_are_those_of_earlier_versions():
    # Golden, made with numpy 2.4: Philox's raw words are promised not to change.
    words = Draws("golden", 1).words(5, row=2, start=3)
    assert words.tolist() == GOLDEN_WORDS
    assert below(words, 10).tolist() == [(word >> 32) * 10 >> 32 for word in GOLDEN_WORDS]
    assert (unit(words) >= 0).all() and (unit(words) < 1).all()


def test_words_can_be_drawn_from_any_place():
    draws = Draws("place")
    whole = draws.words(100, row=3)
    assert (draws.words(60, row=3, start=10) == whole[40:]).all()
    assert not (draws.words(100, row=4) == whole).any()


GOLDEN_WORDS = [
    17925741915981616332, 3036115566922572270, 17636337168455385049, 13237321931255809080,
    10903772253400028400,
]  # fmt: skip


def test_separate_blocks_have_the_row_in_which_each_document_begins(tmp_path):
    """The token before a start closes a document: it opens the next one, but not where tokens are masked."""
    tokens, starts = np.arange(2, 32).astype(np.uint16), np.array([0, 4, 5, 17])
    (tmp_path / "train.tokens").write_bytes(tokens.tobytes())
    np.save(tmp_path / "train.documents.npy", starts)
    stream = TokenStream(tmp_path / "train", VOCABULARY)
    for length in (3, 7, 29):
        both = Blocks(stream, length, separate=True), masked(stream, length, separate=True)
        for blocks, opened in zip(both, (1, 0), strict=True):
            expected = np.zeros(30, int)
            for begin in starts[1:] - opened:
                expected[begin:] = begin
            for index, block in enumerate(blocks):
                begin = index * length
                rows = np.maximum(expected[begin : begin + length] - begin, 0)
                assert block["documents"].tolist() == rows.tolist()
        assert "documents" not in Blocks(stream, length)[0]


def test_windows_of_a_drawn_length_have_their_own_rows_of_documents(tmp_path):
    tokens, starts = np.arange(2, 59).astype(np.uint16), np.array([0, 4, 5, 17, 33, 40])
    (tmp_path / "train.tokens").write_bytes(tokens.tobytes())
    np.save(tmp_path / "train.documents.npy", starts)
    stream = TokenStream(tmp_path / "train", 64)
    loader = ResumableLoader(Blocks(stream, 28, separate=True), EpochSampler(2, 2, seed=0), lengths=(7,))
    of_sevens = {tuple(block["tokens"].tolist()): block for block in Blocks(stream, 7, separate=True)}
    (batch,) = loader
    for window, documents in zip(batch["tokens"], batch["documents"], strict=True):
        assert documents.tolist() == of_sevens[tuple(window.tolist())]["documents"].tolist()
