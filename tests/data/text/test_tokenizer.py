"""Tokens keep every byte, and words are separated by whitespace."""

import json

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from zoo.data.text import tokenizer as tokenizer_module
from zoo.data.text.tokenizer import (
    END,
    MASK,
    TextTokenizer,
    TextUnits,
    learn_characters,
    open_tokenizer,
    train_tokenizer,
)
from zoo.data.text.tokens import TokenStream, write_split
from zoo.errors import InputError

TEXTS = [
    " = Title = \n \n The quick <unk> fox , it 's said , ran .\n \n",
    "the quick quick fox\r\n\ttabs  and   spaces\n\n\nlines",
    "Senjō no ヴァルキュリア — naïve\u00a0café \u2003 wide 🦊🦊 \x0b\x0c end",
    "no end of line",
    "\n",
    "  leading and trailing  ",
]
HOSTILE = [
    "a <|endoftext|> that is text, and a <|mask|> too\n",
    "".join(chr(c) for c in range(0x250)),
    "ſ̷̛̙ ẛ ﬁ \ufeff \u200b\u2028 𐍈",
    "",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 3, 320)


def test_tokens_and_their_bytes_spell_the_text(tokenizer):
    pieces = tokenizer.token_bytes()
    for text in TEXTS + HOSTILE:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert b"".join(pieces[token] for token in tokenizer.encode(text)) == text.encode()


def test_a_long_text_tokenised_in_pieces_has_the_tokens_of_the_whole(tokenizer, monkeypatch):
    text = "".join(
        text + "a line\nanother\n\nafter a gap\n  and\n\tso\r\non.\n9 lives\n" for text in TEXTS * 5
    )
    whole = tokenizer.tokenizer.encode(text).ids
    for size in (1, 10, 100, 10_000):
        monkeypatch.setattr(tokenizer_module, "PIECE", size)
        assert len(list(tokenizer_module.cut(text, size))) > 1 or size > len(text)
        assert tokenizer.encode(text).tolist() == whole
        assert [one.tolist() for one in tokenizer.encode_batch(["", text, "x"])][:2] == [[], whole]


def test_special_tokens_come_first_and_are_never_found_in_text(tokenizer):
    assert {tokenizer.end_token, tokenizer.mask_token} == {0, 1}
    for text in HOSTILE:
        assert not {0, 1} & set(tokenizer.encode(text).tolist())
    assert tokenizer.decode([0, 1]) == END + MASK


def test_same_text_same_tokenizer(tokenizer):
    assert train_tokenizer(TEXTS * 3, 320).fingerprint == tokenizer.fingerprint
    assert train_tokenizer(TEXTS, 300).fingerprint != tokenizer.fingerprint


def test_saved_and_loaded_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    again = TextTokenizer.load(tmp_path / "tokenizer.json")
    assert again.fingerprint == tokenizer.fingerprint
    for text in TEXTS + HOSTILE:
        assert (again.encode(text) == tokenizer.encode(text)).all()


def test_a_vocabulary_with_gaps_reaches_to_its_largest_id(tokenizer, tmp_path):
    content = json.loads(tokenizer.tokenizer.to_str())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {name: 3 * number for name, number in vocabulary.items() if number > 99}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    ours = open_tokenizer(str(tmp_path))
    assert ours.vocab_size == len(ours.token_bytes()) == 3 * 319 + 1
    write_split(TEXTS, ours, TextUnits(ours.token_bytes()), tmp_path / "train")
    stream = TokenStream(tmp_path / "train", ours.vocab_size)
    assert stream[:].max() < ours.vocab_size
    assert ours.decode(stream[:]) == "".join(text + END for text in TEXTS)


def test_characters_are_those_of_the_training_text(tmp_path):
    text = "to be, or not\nto 戦: é ▁"
    ours = learn_characters(["to be, or not\n", "to 戦: é ▁"], 1000)
    spelled = sorted(set(text))
    assert ours.vocab_size == 2 + 256 + len(spelled) == 271
    first = 2 + 256
    assert ours.encode(text).tolist() == [first + spelled.index(one) for one in text]
    assert [ours.token_bytes()[token] for token in range(first, 271)] == [one.encode() for one in spelled]
    # Others are their bytes: 3 and 1 here, and their tokens follow the two special ones.
    assert ours.encode("戧t!").tolist() == [
        2 + 0xE6,
        2 + 0x88,
        2 + 0xA7,
        first + spelled.index("t"),
        2 + 0x21,
    ]
    ours.save(tmp_path / "tokenizer.json")
    again = open_tokenizer(str(tmp_path))
    assert again.fingerprint == ours.fingerprint
    for other in TEXTS + HOSTILE + [text]:
        tokens = again.encode(other)
        assert b"".join(again.token_bytes()[token] for token in tokens) == other.encode()
        assert again.decode(tokens) == other and again.byte_count(other) == len(other.encode())
        assert not {0, 1} & {*tokens.tolist()}


def test_the_most_frequent_characters_are_kept_where_not_all_fit():
    ours = learn_characters(["aab", "bbcc戦", "a"], 260)
    assert ours.token_bytes()[258:] == [b"a", b"b"]
    assert learn_characters(["aab"], 258).encode("ab").tolist() == [2 + ord("a"), 2 + ord("b")]


@pytest.mark.parametrize(("newline_is_word", "vocab_size"), [(False, 258), (True, 320)])
def test_bytes_and_words_of_a_stream_are_those_of_its_documents(newline_is_word, vocab_size):
    tokenizer = train_tokenizer(TEXTS * 3, vocab_size)
    units = TextUnits(tokenizer.token_bytes(), newline_is_word)
    documents = TEXTS + HOSTILE
    stream = np.concatenate([np.append(tokenizer.encode(text), tokenizer.end_token) for text in documents])
    previous = np.append(tokenizer.end_token, stream[:-1])
    raw = [text.encode() for text in documents]
    words = sum(len(one.split()) + (one.count(b"\n") if newline_is_word else 0) for one in raw)
    assert units.bytes_of(stream).sum() == sum(map(len, raw))
    assert units.words_of(stream, previous).sum() == words


def test_words_of_any_cut_add_up(tokenizer):
    # Evaluation scores a stream in pieces: the sum must not depend on where it is cut.
    units = TextUnits(tokenizer.token_bytes(), newline_is_word=True)
    stream = np.concatenate([np.append(tokenizer.encode(text), 0) for text in TEXTS])
    previous = np.append(0, stream[:-1])
    whole = units.words_of(stream, previous).sum()
    for cut in range(len(stream)):
        left = units.words_of(stream[:cut], previous[:cut]).sum()
        assert left + units.words_of(stream[cut:], previous[cut:]).sum() == whole


def test_tokens_that_are_not_scored_count_nothing(tokenizer):
    units = TextUnits(tokenizer.token_bytes(), newline_is_word=True)
    targets = np.array([[-100, tokenizer.end_token], [-1, tokenizer.mask_token]])
    previous = np.zeros_like(targets)
    assert units.bytes_of(targets).tolist() == [[0, 0], [0, 0]]
    assert units.words_of(targets, previous).tolist() == [[0, 0], [0, 0]]


def test_the_first_token_begins_a_word_when_nothing_is_before_it(tokenizer):
    units = TextUnits(tokenizer.token_bytes())
    targets = tokenizer.encode("fox")
    assert units.words_of(targets, np.append(-100, targets[:-1])).sum() == 1


def sentencepiece(prefix):
    """A small tokenizer of SentencePiece, as those of Llama 2 (Prepend) and Mistral (Metaspace) are."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"acehortx"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("c", "a"), ("ca", "t"), ("▁", "cat")]
    names += [a + b for a, b in merges]
    vocab = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if prefix == "Prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="always", split=False)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


@pytest.mark.parametrize("prefix", ["Prepend", "Metaspace"])
def test_the_bytes_of_sentencepiece_are_those_of_the_text(prefix, tmp_path):
    theirs = sentencepiece(prefix)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(str(tmp_path))
    assert ours.vocab_size == theirs.get_vocab_size()
    assert ours.decode([ours.end_token]) == "</s>"
    spelled = ours.token_bytes()
    for text in ("the cat", "the cat\nNaïve 戦場 </s> the", "  two  spaces ", "a ▁ of its own", ""):
        tokens = ours.encode(text)
        assert b"".join(spelled[token] for token in tokens) == text.replace("▁", " ").encode()
        assert ours.byte_count(text) == len(text.replace("▁", " ").encode())
        # With a space before it, a text is what the tokenizer itself makes of it (Metaspace: at most one).
        spaced = text if prefix == "Metaspace" and text.startswith(" ") else f" {text}"
        theirs.encode_special_tokens = True
        complete = theirs.encode(text, add_special_tokens=False).ids
        assert not text or ours.encode(spaced).tolist() == complete


def test_added_tokens_of_spaces_have_the_bytes_of_spaces(tmp_path):
    # As in Gemma, whose runs of spaces are tokens of the vocabulary that are added a second time.
    content = json.loads(sentencepiece("Metaspace").to_str())
    content["model"]["vocab"]["▁▁"] = len(content["model"]["vocab"])
    content["model"]["merges"].insert(0, ["▁", "▁"])
    theirs = Tokenizer.from_str(json.dumps(content))
    theirs.add_tokens([AddedToken("▁▁", normalized=False)])
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(str(tmp_path))
    for text in ("the  cat", "the ▁▁ cat"):
        tokens = ours.encode(text)
        assert theirs.token_to_id("▁▁") in tokens
        assert b"".join(ours.token_bytes()[token] for token in tokens) == text.replace("▁", " ").encode()


NORMALIZERS = {
    "Lowercase": normalizers.Lowercase(),
    "NFD": normalizers.NFD(),
    "NFKC": normalizers.NFKC(),
    "NFKD": normalizers.NFKD(),
    "Nmt": normalizers.Nmt(),
    "BertNormalizer": normalizers.BertNormalizer(lowercase=False),
    "StripAccents": normalizers.StripAccents(),
    "Strip": normalizers.Strip(right=False),
    "Strip of the end": normalizers.Strip(left=False),
    "Prepend": normalizers.Prepend("_"),
    "Replace of lines": normalizers.Replace("\r\n", "\n"),
    "Replace of spaces": normalizers.Replace(Regex(" +"), " "),
    "Replace of digits": normalizers.Replace(Regex("[0-9]"), "0"),
    "Replace of quotes": normalizers.Replace("“", '"'),
}


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("composes", [False, True])
def test_a_tokenizer_that_changes_the_text_is_refused_with_its_normalizer(name, composes, tmp_path):
    # What it learned decides nothing: here it has only seen a text that it does not change.
    for theirs in (train_tokenizer(["a b"], 258).tokenizer, sentencepiece("Metaspace")):
        one = NORMALIZERS[name]
        theirs.normalizer = normalizers.Sequence([normalizers.NFC(), one]) if composes else one
        theirs.save(str(tmp_path / "tokenizer.json"))
        if name == "Prepend" and theirs.token_to_id("<0x00>"):
            open_tokenizer(str(tmp_path))  # switched off
            continue
        with pytest.raises(InputError, match=rf"normalizer changes the text.*{name.split()[0]}\("):
            open_tokenizer(str(tmp_path))


def test_composed_characters_have_their_bytes_after_composition(tokenizer, tmp_path):
    theirs = Tokenizer.from_str(tokenizer.tokenizer.to_str())
    theirs.normalizer = normalizers.NFC()
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours, text = open_tokenizer(str(tmp_path)), "cafe\u0301 \u212b"
    assert ours.decode(ours.encode(text)) == "café \u00c5"
    assert (ours.byte_count(text), tokenizer.byte_count(text)) == (8, 10)


def test_no_space_is_put_before_a_text(tokenizer, tmp_path):
    theirs = Tokenizer.from_str(tokenizer.tokenizer.to_str())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel()
    assert theirs.encode("a").ids != tokenizer.encode("a").tolist()
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(str(tmp_path))
    for text in TEXTS + HOSTILE:
        assert ours.encode(text).tolist() == tokenizer.encode(text).tolist()


def of_pieces(model, pre_tokenizer):
    """A tokenizer of ASCII letters whose pieces within a word begin with ##."""
    names = ["[UNK]", *"abc", "##a", "##b", "##c"]
    tokenizer = Tokenizer(model({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def test_a_tokenizer_that_does_not_spell_a_text_is_refused_when_it_is_opened(tokenizer, tmp_path):
    digits = Tokenizer.from_str(tokenizer.tokenizer.to_str())
    digits.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])
    removed = Tokenizer.from_str(tokenizer.tokenizer.to_str())
    removed.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    for theirs, cause in (
        (digits, "add_prefix_space=True"),
        (removed, "WhitespaceSplit"),
        (of_pieces(models.WordLevel, pre_tokenizers.Whitespace()), "WordLevel.*Whitespace"),
    ):
        theirs.save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(InputError, match=rf"data\.tokenizer: .*tokenizer\.json.*do not spell.*{cause}"):
            open_tokenizer(str(tmp_path))


def test_a_vocabulary_without_some_bytes_serves_the_texts_without_them(tmp_path):
    theirs = Tokenizer(models.BPE({name: number for number, name in enumerate("abcdeĠ")}, []))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = open_tokenizer(str(tmp_path))
    units = TextUnits(ours.token_bytes())
    write_split(["a bad cab"], ours, units, tmp_path / "train")
    with pytest.raises(InputError, match="do not hold the bytes of their text"):
        write_split(["a bad fox"], ours, units, tmp_path / "valid")


def test_a_start_token_is_found_whatever_letters_the_vocabulary_has():
    for start in ("<s>", None):
        theirs = Tokenizer(models.BPE({name: number for number, name in enumerate("bcdeĠ")}, []))
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if start:
            theirs.add_special_tokens([start])
            theirs.post_processor = processors.TemplateProcessing(
                single=f"{start} $A", special_tokens=[(start, theirs.token_to_id(start))]
            )
        assert TextTokenizer(theirs).start_token == start


def test_padding_and_truncation_of_a_tokenizer_file_are_left_out(tokenizer, tmp_path):
    theirs = Tokenizer.from_str(tokenizer.tokenizer.to_str())
    theirs.enable_padding(pad_id=0, pad_token=END)
    theirs.enable_truncation(3)
    theirs.save(str(tmp_path / "tokenizer.json"))
    for got, text in zip(open_tokenizer(str(tmp_path)).encode_batch(TEXTS), TEXTS, strict=True):
        assert got.tolist() == tokenizer.encode(text).tolist()


def test_a_tokenizer_without_byte_tokens_is_refused(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"<eos>": 0, "戦場": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.save(str(tmp_path / "words.json"))
    with pytest.raises(InputError, match=r"data\.tokenizer: .*words\.json.*neither byte-level nor with byte"):
        open_tokenizer(str(tmp_path / "words.json"))
    with pytest.raises(InputError, match="no such file"):
        open_tokenizer(str(tmp_path / "none" / "at" / "all.json"))
