"""CUDA graphs are captured and replayed as without gradscope."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import gradscope
from tests.cuda.loops import WAYS, Trained

STEPS = 12


def made(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4)).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def warm_up(step: Callable[[], object]) -> None:
    """Run on another stream, as has to be before a capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)


def whole_step(device: torch.device) -> Trained:
    """Forward, backward and the optimizer's step are one graph."""
    model, optimizer = made(device)
    x = torch.zeros(16, 32, device=device)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return replayed(graph, model, x, loss, lambda: None)


def without_the_optimizer(device: torch.device) -> Trained:
    """The optimizer steps outside of the graph, with a clip before."""
    model, optimizer = made(device)
    x = torch.zeros(16, 32, device=device)

    def passes() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        return loss

    def step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    warm_up(lambda: (passes(), step()))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = passes()
    return replayed(graph, model, x, loss, step)


def replayed(
    graph: torch.cuda.CUDAGraph,
    model: nn.Module,
    x: Tensor,
    loss: Tensor,
    step: Callable[[], object],
) -> Trained:
    losses = []
    for _ in range(STEPS):
        x.copy_(torch.randn_like(x))
        graph.replay()
        step()
        losses.append(loss.detach().clone())
    return Trained.of(model, losses)


def graphed_callables(device: torch.device) -> Trained:
    """A model's forward and backward are graphs that autograd calls."""
    model, optimizer = made(device)
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn(16, 32, device=device),))
    return trained(graphed, model, optimizer, device)


def reduced_overhead(device: torch.device) -> Trained:
    """The compiler makes the graphs."""
    model, optimizer = made(device)
    compiled = torch.compile(model, mode="reduce-overhead")
    return trained(compiled, model, optimizer, device)


def trained(
    call: Callable[[Tensor], Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> Trained:
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = call(torch.randn(16, 32, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    return Trained.of(model, losses)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "loop", [whole_step, without_the_optimizer, graphed_callables, reduced_overhead]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_graphs_are_left_alone(loop, way, device, capfd):
    plain = loop(device)
    torch.compiler.reset()
    capfd.readouterr()
    with gradscope.watch(**WAYS[way]) as watch:
        watched = loop(device)
    assert "gradscope" not in capfd.readouterr().err
    assert watched.is_same(plain)
    assert not [one for one in watch.findings if one.severity == "error"]
