"""Every optimizer of the registry continues from its saved state bitwise; Muon is torch's own."""

import copy
import io

import pytest
import torch
from tiny_recipes import tiny
from torch import nn

from zoo import registry
from zoo.contract.subject import small_model
from zoo.optimizers import build_optimizer


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11))


def config(name):
    return tiny({"name": "copy", "sequence_length": 16}, optimizer={"name": name, "lr": 1e-2}).optimizer


def train(net, optimizers, steps):
    for step in steps:
        tokens = torch.randint(11, (4, 6), generator=torch.Generator().manual_seed(step))
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten()).backward()
        for optimizer in optimizers:
            optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


@pytest.mark.parametrize("name", registry.optimizers.names())
def test_an_optimizer_continues_from_its_saved_state_bitwise(name):
    whole = model()
    expected = train(whole, [build_optimizer(config(name), whole, "16-mixed")], range(6))
    net = model()
    optimizer = build_optimizer(config(name), net, "16-mixed")
    train(net, [optimizer], range(3))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = copy.deepcopy(net)
    optimizer = build_optimizer(config(name), resumed, "16-mixed")
    optimizer.load_state_dict(torch.load(file))
    for one, other in zip(train(resumed, [optimizer], range(3, 6)), expected, strict=True):
        assert torch.equal(one, other)


def test_muon_is_torchs_for_matrices_and_adamw_for_vectors():
    net, other = model(), model()
    ours = train(net, [build_optimizer(config("muon"), net, "16-mixed")], range(5))
    matrices, vectors = (
        [p for p in other.parameters() if (p.dim() == 2) == is_2d] for is_2d in (True, False)
    )
    muon = torch.optim.Muon(
        matrices, lr=1e-2, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW(vectors, lr=1e-2, weight_decay=0.0, betas=(0.9, 0.95))
    for one, same in zip(ours, train(other, [muon, adamw], range(5)), strict=True):
        torch.testing.assert_close(one, same, rtol=0, atol=1e-6)


DECAYED = {
    "deberta": {"keys", "queries"},
    "transformer_xl": {"project"},
    "path": {"down", "up", "strength.weight"},
    "selective_rope": {"down", "up"},
    "repo": {"gate.weight", "content.weight", "assign.weight"},
    "fox": {"gate.weight"},
    "cable": {"steps.weight"},
    "grape_m": {"gate.weight"},
    "wall": {"gate.weight"},
    "inkling": {"mix.weight"},
    "fire": {"hidden.weight", "out.weight"},
    "dpb": {"hidden.0.weight", "hidden.1.weight", "out.weight"},
    "dape": {"inner.weight", "outer.weight"},
}
"""Parameters of encodings that are matrices of linear maps; no others decay."""


def test_matrices_of_linear_maps_decay_and_vectors_and_tables_by_position_do_not(spec_of):
    found = {}
    for name in registry.encodings.names():
        if registry.encodings.describe(name).replaces:
            continue
        kind = "decoder" if registry.encodings.describe(name).decoder else "encoder"
        model = small_model(spec_of(name), kind)
        own = {id(p): key.split(".", 3)[-1] for key, p in model.encoding.named_parameters()}
        groups = {
            group["weight_decay"]: group["params"]
            for group in build_optimizer(config("adamw"), model, "16-mixed").param_groups
        }
        assert all(p.dim() == 2 for p in groups[0.1])
        assert {id(p) for p in model.parameters()} == {id(p) for part in groups.values() for p in part}
        found[name] = {own[id(p)] for p in groups[0.1] if id(p) in own}
        assert {id(m.weight) for m in model.blocks.modules() if isinstance(m, nn.Linear)} <= {
            id(p) for p in groups[0.1]
        }
    assert {name: decayed for name, decayed in found.items() if decayed} == DECAYED


def test_an_embedding_of_positions_does_not_decay_and_that_of_tokens_does():
    net = small_model("none", "decoder")
    net.encoding.rows = nn.Embedding(4, 8)
    groups = build_optimizer(config("adamw"), net, "16-mixed").param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert (decay[id(net.encoding.rows.weight)], decay[id(net.tokens.weight)]) == (0.0, 0.1)


def test_eps_and_the_kernel_are_those_of_the_recipe():
    net = torch.nn.Linear(2, 2)
    for fused, precision, expected in (
        ("auto", "32-true", True), ("auto", "16-mixed", None), (True, "32-true", True),
        (False, "32-true", None),
    ):  # fmt: skip
        made = config("adamw").model_copy(update={"fused": fused, "eps": 1e-3})
        (group, _) = build_optimizer(made, net, precision).param_groups
        assert (group["eps"], group["fused"]) == (1e-3, expected)
