"""On a GPU, a recorded training is bit-identical, and its norms are exact."""

import pytest
import torch
from torch import nn

import gradscope
from gradscope.capture.statistics import Measurer, norms
from gradscope.probes.forward.forward_values import values_of
from tests.cuda.loops import KINDS, WAYS, Trained, train


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_is_the_same_to_the_last_bit(kind, way, device):
    plain = train(kind, device, 12)
    assert train(kind, device, 12).is_same(plain)
    with gradscope.watch(**WAYS[way]) as watch:
        watched = train(kind, device, 12)
    assert watched.is_same(plain)
    assert not [one for one in watch.findings if one.severity == "error"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 4097, 3_000_001])
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e18, 1e-25])
def test_norms_are_those_of_float64(dtype, size, scale, device):
    if dtype is torch.float16 and scale in (1e18, 1e-25):
        pytest.skip("outside of its range")
    torch.manual_seed(size)
    tensor = (torch.randn(size, dtype=torch.float64, device=device) * scale).to(dtype)
    expected = pytest.approx(tensor.double().norm().item(), rel=1e-6)
    assert norms([tensor]) == [expected]
    measurer = Measurer()
    measurer.add((0, 0), tensor)
    stat = measurer.results()[0, 0]
    assert stat.norm == expected
    assert stat.absolute_maximum == tensor.double().abs().max().item()
    assert stat.nonfinite == 0
    values = values_of(tensor)
    assert values.norm == pytest.approx(tensor.double().norm().item(), rel=1e-6)
    assert values.zeros == (tensor == 0).sum().item()


def test_norms_of_tensors_on_both_sides_keep_their_order(device):
    tensors = [torch.full((3,), 2.0), torch.full((5000,), 3.0, device=device), torch.ones(2)]
    tensors += [torch.full((4,), 5.0, device=device, dtype=torch.bfloat16)]
    expected = [tensor.double().norm().item() for tensor in tensors]
    assert norms(tensors) == [pytest.approx(norm, rel=1e-6) for norm in expected]


def on_streams(device: torch.device, steps: int) -> Trained:
    """Train two branches on streams of their own."""
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(256, 256), nn.Linear(256, 256)]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    streams = [torch.cuda.Stream(device) for _ in model]
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        x, parts = torch.randn(512, 256, device=device), []
        for layer, stream in zip(model, streams, strict=True):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                parts.append(layer(x).tanh())
                x.record_stream(stream)
        for part, stream in zip(parts, streams, strict=True):
            torch.cuda.current_stream().wait_stream(stream)
            part.record_stream(torch.cuda.current_stream())
        loss = (parts[0] - parts[1]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return Trained.of(model, losses)


@pytest.mark.parametrize("way", WAYS)
def test_several_streams(way, device):
    plain = on_streams(device, 12)
    with gradscope.watch(**WAYS[way]) as watch:
        watched = on_streams(device, 12)
    assert watched.is_same(plain)
    assert watch.steps == 12
    assert not [one for one in watch.findings if one.severity == "error"]
