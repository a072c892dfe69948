"""Every optimizer of the registry goes on from its saved state bit for bit; Muon is torch's own."""

import copy
import io

import pytest
import torch
from torch import nn

from zoo import registry
from zoo.optimizers import build_optimizer
from zoo.recipe import resolve


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11))


def config(name):
    model = {"kind": "decoder", "encoding": "none", "d_model": 8, "num_layers": 1, "num_heads": 1}
    data = {"name": "copy", "sequence_length": 16, "batch_size": 2}
    values = {"name": "x", "model": model, "data": data, "trainer": {"max_steps": 1}}
    return resolve({**values, "optimizer": {"name": name, "lr": 1e-2}}).optimizer


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
def test_it_goes_on_from_its_saved_state_bit_for_bit(name):
    whole = model()
    expected = train(whole, [build_optimizer(config(name), whole.parameters(), False)], range(6))
    net = model()
    optimizer = build_optimizer(config(name), net.parameters(), False)
    train(net, [optimizer], range(3))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = copy.deepcopy(net)
    optimizer = build_optimizer(config(name), resumed.parameters(), False)
    optimizer.load_state_dict(torch.load(file))
    for one, other in zip(train(resumed, [optimizer], range(3, 6)), expected, strict=True):
        assert torch.equal(one, other)


def test_muon_is_torchs_for_matrices_and_adamw_for_what_is_none():
    net, other = model(), model()
    ours = train(net, [build_optimizer(config("muon"), net.parameters(), False)], range(5))
    matrices, vectors = (
        [p for p in other.parameters() if (p.dim() == 2) == is_2d] for is_2d in (True, False)
    )
    muon = torch.optim.Muon(
        matrices, lr=1e-2, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW(vectors, lr=1e-2, weight_decay=0.0, betas=(0.9, 0.95))
    for one, same in zip(ours, train(other, [muon, adamw], range(5)), strict=True):
        torch.testing.assert_close(one, same, rtol=0, atol=1e-6)
