"""The items of scripts/gpu_check.py: `test_PART_NAME`, or `test_PART` with names, is the item PART/NAME."""

import math
import platform
import subprocess
import time
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from killed_runs import results_of
from run_files import assert_same, saved, settings
from torch._dynamo import config as dynamo

from peers.bare import SIZES, matrix_rate, products, random_tokens, train
from peers.libraries import BUILDERS
from zoo import registry
from zoo.contract import LAWS, kernel_equivalence, subject
from zoo.contract.law import examine
from zoo.contract.subject import keep_of, small_model, some_tokens, subjects_of
from zoo.memory import peak_memory_mb, restart_peak_memory
from zoo.models.plans import flex
from zoo.models.transformer import Decoder
from zoo.recipe.schema import ModelConfig

pytestmark = [pytest.mark.gpu, pytest.mark.launch]
DECODERS = [name for name in registry.encodings.names() if registry.encodings.describe(name).decoder]
TRAINED = ("none", "rope", "alibi", "t5", "kerple", "fire", "fox", "path", "llama")


def relative_error(actual, exact):
    """The norm of the difference by the norm of the exact values."""
    return ((actual.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-12)).item()


def test_environment(device, numbers):
    numbers(torch=str(torch.__version__), python=platform.python_version())
    if device.type == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        numbers(gpus=subprocess.check_output(query, text=True).strip(), cuda=torch.version.cuda)
    numbers(bf16_tflops=round(matrix_rate(torch.bfloat16, device) / 1e12, 3))


# Correctness

NOT_ON_A_GPU = ("two_processes", "built_on_meta", "memory_grows_linearly", "one_graph")
"""Laws that train in processes on a CPU, move a model to a CPU, or count the memory of operations. And
torch.compile does not trace with a default device."""


@pytest.fixture
def laws_hold(device, monkeypatch):
    """Tries laws on subjects whose models and tokens are drawn on the CPU, as everywhere, and moved."""

    def moved(make, *of, **given):
        with torch.device("cpu"):
            made = make(*of, **given)
        return made if made is None else made.to(device)

    for module, make in ((subject, small_model), (subject, some_tokens), (kernel_equivalence, keep_of)):
        monkeypatch.setattr(module, make.__name__, partial(moved, make))

    def laws_hold(subjects, chosen):
        verdicts = examine(subjects, [law for law in LAWS if chosen(law.trial.__name__)])
        broken = [f"{v.law.name}: {found.numbers} ({one})" for v in verdicts for one, found in v.failures]
        assert not broken, "; ".join(broken)
        return sum(bool(verdict.findings) for verdict in verdicts)

    return laws_hold


@pytest.mark.parametrize("name", DECODERS)
def test_laws(name, device, numbers, laws_hold):
    subjects = [one for one in subjects_of(registry.encodings.describe(name))[0] if one.is_default]
    compiled = laws_hold(subjects, lambda law: law == "one_graph")
    with device:
        others = laws_hold(subjects, lambda law: law not in NOT_ON_A_GPU)
    numbers(laws=compiled + others, of=len(LAWS))


@pytest.mark.parametrize("name", DECODERS)
def test_kernels(name, device, numbers, laws_hold):
    """The law of kernels holds with heads as wide as FlexAttention needs. In bf16 the errors to float64, of
    which some count at least 0.001, are at most twice those of the reference kernel (root mean squares)."""
    if device.type == "cuda" and name in ("t5", "fire", "dpb", "kerple"):
        for dtype, width in product((torch.float32, torch.bfloat16), (16, 64, 128, 256)):
            assert flex.bias_gradient_agrees(device, dtype, width), (dtype, width)
    one, squares = subjects_of(registry.encodings.describe(name))[0][0], {}
    with dynamo.patch(recompile_limit=64, fail_on_recompile_limit_hit=True):
        laws_hold([replace(one, config={**one.config, "d_model": 96})], lambda law: law == "kernels_agree")
    for case in ((130, None, 0, None), (1000, None, 5, 2), (1000, 100, 0, None)):
        torch.compiler.reset()  # each compiles FlexAttention anew, far from the recompile limit
        computed = [gradients(one, device, *case, how) for how in ("exact", "auto", "reference")]
        for what, exact in computed[0].items():
            if exact.norm() > 1e-9:
                pair = [relative_error(other[what], exact) ** 2 for other in computed[1:]]
                squares.setdefault(what, []).append(pair)
    errors = {what: torch.tensor(pairs).mean(0).sqrt().tolist() for what, pairs in squares.items()}
    ratios = {what: round(own / max(other, 1e-3), 3) for what, (own, other) in errors.items()}
    numbers(bf16_ratio=ratios, bf16_error={what: float(f"{own:.2g}") for what, (own, _) in errors.items()})
    assert max(ratios.values()) <= 2, f"bf16 errors by those of the reference kernel: {ratios}, {errors}"


def gradients(one, device, length, window, padding, kv_heads, kernel):
    """The logits, the gradients of the encoding, and the others, in bf16 or, `exact`, in float64."""
    exact, keep = kernel == "exact", keep_of((0, padding), length).to(device) if padding else None
    model = small_model(
        one.spec, d_model=64, num_heads=4, num_kv_heads=kv_heads, window=window, length=1000,
        kernel="reference" if exact else kernel, large_weights=False, **one.config,
    ).to(device, torch.float64 if exact else None)  # fmt: skip
    tokens, real = some_tokens(2, length + 1).to(device), slice(None) if keep is None else keep
    with torch.autocast(device.type, torch.bfloat16, enabled=not exact):
        logits = model(tokens[:, :-1], keep)[real].flatten(0, -2).double()
    F.cross_entropy(logits, tokens[:, 1:][real].flatten()).backward()
    found = {"output": [logits.detach()], "encoding": [torch.zeros(1, device=device)], "weights": []}
    for of, weight in model.named_parameters():
        if weight.grad is not None:
            found["encoding" if of.startswith("encoding.") else "weights"].append(weight.grad)
    return {what: torch.cat([x.double().flatten() for x in some]) for what, some in found.items()}


# Whole runs


@pytest.fixture
def zoo(zoo_command, device, here, monkeypatch):
    """Run commands of the zoo; `zoo.fit(out, *changes)` trains `text.yaml` and gives the folder."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic algorithms need it

    def run(*words, code=0, expected=""):
        done = zoo_command(*words)
        assert done.returncode == code and expected in done.stderr, f"{words}: {done.stderr[-800:]}"

    def fit(out, *sets, more=(), **result):
        sets = settings(f"trainer.accelerator={device.type}", "optimizer.schedule=constant", *sets)
        run("fit", "text.yaml", "--out", out, *sets, *more, **result)
        return here / out

    return SimpleNamespace(run=run, fit=fit)


@pytest.fixture
def two_devices(device):
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")


def losses(run):
    return {str(row["length"]): row.get("loss_nats", math.nan) for row in results_of(run)}


def test_run_resume(zoo):
    """Resumed, a run is bitwise what it would have been."""
    half, all_steps = (("trainer.deterministic=true", f"trainer.max_steps={n}") for n in (20, 40))
    zoo.fit("halted", *half)
    whole, resumed = zoo.fit("whole", *all_steps), zoo.fit("halted", *all_steps, more=["--resume"])
    assert_same(saved(whole), saved(resumed))


def test_run_evaluate(zoo, numbers):
    """To 16 times the trained length."""
    zoo.run("evaluate", run := zoo.fit("run"), "--lengths", "16,32,64,128,256")
    numbers(loss_nats=losses(run))
    assert len(losses(run)) == 5 and all(map(math.isfinite, losses(run).values()))


def test_run_out_of_memory(zoo, device):
    if device.type == "cpu":
        pytest.skip("it would take all memory of the machine")
    # 524,288 tokens of width 2,048: some 60 GiB of activations in each layer.
    sets = "model.d_model=2048", "model.num_layers=8", "data.batch_size=32768"
    zoo.fit("run", *sets, code=1, expected="out of memory: raise trainer.accumulate_grad_batches")


def test_run_nan(zoo):
    sets = "optimizer.lr=1e30", "optimizer.warmup_steps=0", "trainer.max_steps=40"
    zoo.fit("run", *sets, code=1, expected="a lower optimizer.lr")


def two_train_what_one_does(zoo, numbers, *sets):
    one, two = (("trainer.max_steps=40", f"trainer.devices={n}") for n in (1, 2))
    runs = zoo.fit("on1", *one), zoo.fit("on2", *two, *sets)
    weights = [torch.cat([x.flatten() for x in saved(run)["state_dict"].values()]) for run in runs]
    numbers(difference=(off := relative_error(*weights)))
    assert off <= 1e-3


def test_run_ddp(zoo, numbers, two_devices):
    """Two devices train what one does."""
    two_train_what_one_does(zoo, numbers)


def test_run_fsdp(zoo, numbers, two_devices):
    """So they do with a part of the model each."""
    two_train_what_one_does(zoo, numbers, "trainer.strategy=fsdp")


def test_run_context_parallel(zoo, numbers, two_devices):
    """So they do with a part of each sequence each."""
    two_train_what_one_does(zoo, numbers, "trainer.context_parallel=2")


def test_run_split_sequence(zoo, numbers, two_devices):
    """Two devices together have the losses of one."""
    evaluate = ["evaluate", run := zoo.fit("run"), "--lengths", "64,240"]
    zoo.run(*evaluate)
    numbers(loss_nats=(one := losses(run)))
    zoo.run(*evaluate, "--devices", 2, *settings("evaluate.split_sequence=true"))
    assert losses(run) == pytest.approx(one, rel=1e-4)


# Speed and memory of training


def rate_and_memory(name, device, count, compiled=True, **changes):
    """Steps per second of AdamW in bf16, MiB at the peak, and the size of the model with changes."""
    torch.manual_seed(0)
    size = replace(SIZES["124M" if device.type == "cuda" else "tiny"], **changes)
    if name == "llama":
        model, loss_of = BUILDERS["HF Llama", "rope"](size, True)
    else:
        shape = {"d_model": size.width, "num_layers": size.layers, "num_heads": size.heads}
        config = ModelConfig(kind="decoder", encoding=name, **shape)
        model = Decoder(config, size.vocabulary, size.length)

        def loss_of(tokens):
            given, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
            return model(given, targets=targets) / targets.numel()

    model.to(device).train()
    if compiled:
        model.compile(backend="inductor" if device.type == "cuda" else "eager")
    steps = train(model, loss_of, random_tokens(size, device), bf16=True)
    losses = [next(steps).item() for _ in range(5 if compiled else 1)]
    restart_peak_memory(device)
    began = time.perf_counter()
    losses += [[next(steps).detach() for _ in range(count)][-1].item()]  # waits for the device
    seconds = time.perf_counter() - began
    # The first loss is that of a model that knows nothing: log V.
    assert abs(losses[0] - math.log(size.vocabulary)) < 1 and math.isfinite(losses[-1]), losses
    return count / seconds, round(peak_memory_mb(device)), size


@pytest.mark.parametrize("name", TRAINED)
def test_compile(name, device):
    """Fills the cache of compiled code for `training`, while other items run."""
    rate_and_memory(name, device, 1)


@pytest.mark.alone
@pytest.mark.parametrize("name", TRAINED)
def test_training(name, device, numbers):
    """`of_matrix_rate` counts the operations of `none`."""
    rate, memory, size = rate_and_memory(name, device, 20)
    share = rate * products(size) / matrix_rate(torch.bfloat16, device)
    tokens = round(rate * size.batch * size.length)
    numbers(tokens_per_s=tokens, peak_mib=memory, of_matrix_rate=round(share, 3))


@pytest.mark.alone
@pytest.mark.parametrize("name", TRAINED)
def test_long(name, device, numbers):
    """A step of one long sequence, uncompiled. Memory grows with the length, not with its square."""
    memories = []
    for length in (8192, 32768) if device.type == "cuda" else (128, 512):
        rate, memory, _ = rate_and_memory(name, device, 1, compiled=False, length=length, batch=1)
        numbers(**{f"tokens_per_s_{length}": round(rate * length), f"peak_mib_{length}": memory})
        memories.append(memory)
    assert memories[1] < 5 * memories[0]
