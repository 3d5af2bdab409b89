"""Mixed precision with a real gradient scaler on the GPU."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.cuda.loops import WAYS, Trained

STEPS = 16


def train(device: torch.device, *, fused: bool = False) -> tuple[Trained, int]:
    """Train from a scale that is too large; return what is left and the steps left out."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 8)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**24)
    losses, skipped = [], 0
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(32, 64, device=device)
        with torch.autocast(device.type, torch.float16):
            loss = functional.cross_entropy(model(x), torch.randint(8, (32,), device=device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        before = scaler.get_scale()
        scaler.update()
        skipped += scaler.get_scale() < before
        losses.append(loss.detach())
    return Trained.of(model, losses), skipped


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fused", [False, True])
def test_a_scaled_training_is_the_same_and_its_skipped_steps_are_counted(way, fused, device):
    plain, skipped = train(device, fused=fused)
    assert 0 < skipped < STEPS
    with gradscope.watch(**WAYS[way]) as watch:
        watched, again = train(device, fused=fused)
    assert watched.is_same(plain)
    assert again == skipped
    events = [one for one in watch.report().recording.events if one.kind == "scaler-step"]
    assert sum(dict(one.numbers)["skipped"] > 0 for one in events) == skipped
    assert not [one for one in watch.findings if one.severity == "error"]
