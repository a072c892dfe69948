"""An exported model in the tools it is exported for: lm-evaluation-harness and peft."""

import json
import math
import shlex
from itertools import pairwise

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from zoo.data.text.tokenizer import TextTokenizer
from zoo.pretrained.export import export

DOCUMENTS = ["the cat sat on the mat", "one dog and two cats", "a log"]


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """The folder in which `transformers` and `datasets` keep their copies."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")


def harness_task(folder, name, **keys):
    """A task of the harness over a local file."""
    data = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "documents.jsonl")}},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, "test_split": "test", **data, **keys}))


@pytest.mark.slow
def test_the_harness_measures_the_perplexity_of_the_model(checkpoint, tmp_path, modules):
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    place, task = checkpoint()
    export(place, tmp_path / "out", "hf")
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    lines = [{"text": text, "choices": [" the mat", " a log"], "gold": 0} for text in DOCUMENTS]
    (tasks / "documents.jsonl").write_text("\n".join(map(json.dumps, lines)))
    harness_task(
        tasks, "local_perplexity", output_type="loglikelihood_rolling", doc_to_text="",
        doc_to_target="text", metric_list=[{"metric": "bits_per_byte"}],
    )  # fmt: skip
    harness_task(
        tasks, "local_choice", output_type="multiple_choice", doc_to_text="text", doc_to_choice="choices",
        doc_to_target="gold", metric_list=[{"metric": "acc"}],
    )  # fmt: skip
    harness_task(
        tasks, "local_writing", output_type="generate_until", doc_to_text="text", doc_to_target="gold",
        generation_kwargs={"until": ["\n\n"], "max_gen_toks": 4, "do_sample": False},
        metric_list=[{"metric": "exact_match"}],
    )  # fmt: skip
    model = HFLM(pretrained=str(tmp_path / "out"), trust_remote_code=True, device="cpu", batch_size=2)
    measured = simple_evaluate(
        model=model,
        tasks=["local_perplexity", "local_choice", "local_writing"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
    )
    assert {name: result["sample_len"] for name, result in measured["results"].items()} == dict.fromkeys(
        ("local_perplexity", "local_choice", "local_writing"), len(DOCUMENTS)
    )
    tokenizer, nats = TextTokenizer.load(place / "tokenizer.json"), 0.0
    for text in DOCUMENTS:
        ids = torch.tensor([[tokenizer.end_token, *tokenizer.encode(text)]])
        with torch.no_grad():
            nats += task.model(ids[:, :-1], targets=ids[:, 1:]).item()
    wanted = nats / math.log(2) / sum(map(len, DOCUMENTS))
    got = measured["results"]["local_perplexity"]["bits_per_byte,none"]
    assert got == pytest.approx(wanted, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sets", [(), ("model.encoding=rope",)])
def test_the_printed_command_reads_a_needle_beyond_the_trained_length(sets, checkpoint, tmp_path, modules):
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import simple_parse_args_string

    place, task = checkpoint(*sets)
    exported = export(place, tmp_path / "out", "hf")
    command = shlex.split(exported.harness)
    given = dict(pairwise(command))
    assert json.loads(given["--metadata"]) == {"max_seq_lengths": [16, 32, 64, 128]}
    arguments = simple_parse_args_string(given["--model_args"])
    tokenizer = TextTokenizer.load(place / "tokenizer.json")
    hay = " the log" * 20
    prompts = [f"{needle}{hay}" for needle in ("one", "two")]
    assert all(16 < len(tokenizer.encode(hay)) < len(tokenizer.encode(text)) < 128 for text in prompts)
    lines = [{"text": text, "choices": [" one", " two"], "gold": 0} for text in prompts]
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "documents.jsonl").write_text("\n".join(map(json.dumps, lines)))
    harness_task(
        tasks, "local_needle", output_type="multiple_choice", doc_to_text="text", doc_to_choice="choices",
        doc_to_target="gold", target_delimiter="", metric_list=[{"metric": "acc"}],
    )  # fmt: skip

    def answers(arguments):
        """The log-likelihood of the first answer to each prompt."""
        measured = simple_evaluate(
            model=HFLM(**arguments, device="cpu", batch_size=1), tasks=["local_needle"], bootstrap_iters=0,
            task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        )  # fmt: skip
        samples = sorted(measured["samples"]["local_needle"], key=lambda one: one["doc_id"])
        return [one["resps"][0][0][0] for one in samples]

    expected = []
    for text in prompts:
        start, end = tokenizer.encode(text), tokenizer.encode(text + " one")
        ids = torch.tensor(end)[None]
        with torch.no_grad():
            logs = task.model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None])
        expected.append(logs[0, len(start) - 1 :].sum().item())
    assert answers(arguments) == pytest.approx(expected, rel=1e-5)
    assert abs(expected[0] - expected[1]) > 1e-3
    # Without its length the harness cuts the needle off.
    del arguments["max_length"]
    one, two = answers(arguments)
    assert one == two


@pytest.mark.slow
def test_peft_trains_an_adapter_that_loads_again(checkpoint, tmp_path, modules):
    import peft

    place, task = checkpoint()
    export(place, tmp_path / "out", "hf")

    def load():
        return AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True)

    lora = peft.LoraConfig(target_modules=["qkv", "out"], task_type="CAUSAL_LM", r=2)
    model = peft.get_peft_model(load(), lora).train()
    adapters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(adapters, 0.05)
    ids, losses = torch.randint(300, (2, 16)), []
    for _ in range(5):
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    plain = task.model(ids[:, :-1], targets=ids[:, 1:]) / ids[:, 1:].numel()
    assert losses[0] == pytest.approx(plain.item(), rel=1e-5)
    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(load(), tmp_path / "adapter").eval()
    wanted = model.eval()(input_ids=ids).logits
    assert torch.equal(again(input_ids=ids).logits, wanted)
    assert not torch.allclose(load()(input_ids=ids).logits, wanted, atol=1e-3)
