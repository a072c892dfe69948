"""Generated text: of an imported model as `transformers` writes it, and the output of the command."""

import io
import json
import types

import pytest
import torch
import transformers
from published import publish

import zoo
from zoo import cli
from zoo.data.text.tokenizer import train_tokenizer
from zoo.errors import InputError
from zoo.generation.text import TextGenerator, open_generator
from zoo.models.decoding import GREEDY, Sampling
from zoo.pretrained.import_model import import_model, read_published
from zoo.runs.load import LoadedRun
from zoo.tasks import build_task

PROMPTS = ["the cat sat on", "one two three four five six", "the"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A published model of 32 trained tokens, and the run that it was imported as."""
    home = tmp_path_factory.mktemp("generation")
    model = publish("llama", home / "published")
    folder = import_model(read_published(str(home / "published"), []), "llama", [], home / "llama")
    return model, folder


@pytest.fixture
def generator(imported):
    return open_generator(imported[1])


@pytest.fixture
def of_encoding(recipe):
    """A generator with a model at its initial weights."""

    def of_encoding(encoding, *sets):
        tokenizer = train_tokenizer(["a few words of a text, and a few more of them"] * 20, 300)
        task = build_task(recipe("text", f"model.encoding={encoding}", *sets), tokenizer.vocab_size).eval()
        return TextGenerator(task, tokenizer)

    return of_encoding


def test_greedy_text_is_that_of_transformers(imported, generator):
    theirs, folder = imported
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder.parent / "published")
    expected = []
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        written = theirs.generate(ids, max_new_tokens=40, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
        expected.append(generator.text_of(written.tolist()))
    together = generator.generate(PROMPTS, 40, GREEDY)
    assert [one.text for one in together] == expected
    alone = ["".join(piece.text for piece in generator.stream(prompt, 40, GREEDY)) for prompt in PROMPTS]
    assert alone == expected
    assert zoo.open(folder).generate(PROMPTS[0], 40, temperature=0) == expected[0]


def test_draws_follow_the_seed(generator):
    def text(seed, **options):
        return generator.generate(PROMPTS[:1], 20, Sampling(**options), seed)[0].text

    assert text(0) == text(0) != text(1)
    streamed = "".join(piece.text for piece in generator.stream(PROMPTS[0], 20, Sampling(), 0))
    assert streamed == text(0)
    assert text(3, top_k=1) == text(4, temperature=0)


def test_a_character_of_several_tokens_is_printed_whole(generator):
    tokens = generator.tokenizer.encode("é→é").tolist()
    assert len(tokens) > 3
    assert generator.text_of(tokens) == "é→é"
    assert generator.text_of(tokens[:-1]) == "é→\ufffd"
    generator._decode = lambda *_: map(torch.tensor, tokens)
    pieces = list(generator.stream("x"))
    assert "".join(piece.text for piece in pieces) == "é→é"
    assert "" in [piece.text for piece in pieces]


def test_a_closed_document_ends_the_text(generator):
    end = generator.tokenizer.end_token
    a, b, c = generator.tokenizer.encode("abc").tolist()
    generator._decode = lambda *_: iter(
        [torch.tensor([a, b]), torch.tensor([end, c]), torch.tensor([c, end])]
    )
    first, second = generator.generate(["x", "y"], 5)
    assert (first.text, first.tokens, first.ended) == ("a", 2, True)
    assert (second.text, second.tokens, second.ended) == ("bc", 3, True)
    generator._decode = lambda *_: iter([torch.tensor([a]), torch.tensor([end]), torch.tensor([b])])
    pieces = list(generator.stream("x", 5))
    assert [(piece.text, piece.ended) for piece in pieces] == [("a", False), ("", True)]


def test_it_stops_where_the_encoding_ends(of_encoding):
    generator = of_encoding("learned")
    (one,) = generator.generate(["a"], 100, GREEDY)
    prompt = len(generator.prompt_tokens("a"))
    assert one.ended or prompt + one.tokens == generator.longest + 1
    with pytest.raises(
        InputError, match=rf"prompt 2 has \d+ tokens, but the encoding ends at {generator.longest}"
    ):
        generator.generate(["a", "few words of" * 30], 5)


def test_an_empty_prompt_begins_a_document(of_encoding):
    generator = of_encoding("[rope, fox]")
    assert generator.prompt_tokens("") == [generator.tokenizer.end_token]
    assert generator.generate([""], 4, GREEDY)[0].prompt == ""


def test_the_command_prints_text_and_notes_where_the_trained_length_ends(imported, capsys):
    folder = str(imported[1])
    assert (
        cli.main(["generate", folder, "--prompt", PROMPTS[0], "--max-new-tokens", "60", "--seed", "3"]) == 0
    )
    out, err = capsys.readouterr()
    expected = open_generator(folder).generate(PROMPTS[:1], 60, seed=3)[0]
    assert out == f"{PROMPTS[0]}{expected.text}\n"
    assert err.count("beyond the trained length of 32 tokens from here on") == 1
    assert f"done: {expected.tokens} tokens after a prompt of" in err.splitlines()[-1]


def test_a_prompt_from_stdin_and_prompts_from_a_file(imported, capsys, here, monkeypatch):
    folder = str(imported[1])
    options = ["--temperature", "0", "--max-new-tokens", "8"]
    monkeypatch.setattr(
        "sys.stdin", types.SimpleNamespace(isatty=lambda: False, buffer=io.BytesIO(b"the cat\n"))
    )
    assert cli.main(["generate", folder, *options]) == 0
    assert capsys.readouterr().out.startswith("the cat")
    (here / "prompts.txt").write_text("the cat\n\none two\n")
    assert cli.main(["generate", folder, "--prompts", "prompts.txt", *options]) == 0
    written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["prompt"] for one in written] == ["the cat", "one two"]
    assert [one["tokens"] for one in written] == [8, 8]


def test_wrong_input_is_one_message(imported, capsys, here, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    (here / "empty.txt").write_text("\n\n")
    for options, message in (
        (["--prompts", "empty.txt"], "no prompt in it"),
        (["--prompts", "missing.txt"], "missing.txt"),
        ([], "no prompt: --prompt TEXT"),
        (["--prompt", "x", "--device", "nonsense"], "device 'nonsense'"),
        (["--prompt", "x", "--set", "model.num_layers=7"], "model.num_layers"),
    ):
        assert cli.main(["generate", str(imported[1]), *options]) == 2, options
        assert message in capsys.readouterr().err, options


def test_options_out_of_range_are_refused(capsys):
    wrong = ["--prompt", "x", "--temperature", "nan", "--top-p", "1.5"]
    assert cli.main(["generate", "runs/x", *wrong]) == 2
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "temperature",
        "top_p",
    ]
    for options in (["--top-k", "0"], ["--max-new-tokens", "0"], ["--prompt", "x", "--prompts", "y"]):
        with pytest.raises(SystemExit) as error:
            cli.main(["generate", "runs/x", *options])
        assert error.value.code == 2 and options[0] in capsys.readouterr().err, options


def test_a_run_that_generates_no_text_is_refused(imported, tmp_path, recipe, monkeypatch):
    folder = imported[1]
    encoder = LoadedRun(folder, folder, folder, build_task(recipe("masked"), 300))
    monkeypatch.setattr("zoo.generation.text.load_run", lambda *_: encoder)
    with pytest.raises(InputError, match="an encoder, which reads all tokens at once"):
        open_generator(folder)
    monkeypatch.undo()
    tokenizer = folder / "tokenizer.json"
    content = tokenizer.read_text()
    try:
        train_tokenizer(["another text"] * 9, 280).save(tokenizer)
        with pytest.raises(InputError, match="not the tokenizer that this model was trained with"):
            open_generator(folder)
        tokenizer.unlink()
        with pytest.raises(InputError, match=r"no tokenizer\.json in it"):
            open_generator(folder)
    finally:
        tokenizer.write_text(content)
