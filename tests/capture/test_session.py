"""A capture leaves the process unchanged."""

import copy
import gc
import pickle
import random
import sys
import threading
import weakref
from collections.abc import Callable

import numpy
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gradscope.capture.step import graph
from gradscope.capture.step.forward_backward import StepCapture

STEPS = 5


class Network(nn.Module):
    """Dropout, batch norm, a tied weight, a buffer and randomness from three sources."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.dropout = nn.Dropout(0.3)
        self.register_buffer("steps", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        x = self.dropout(self.norm(self.first(x)).relu())
        noise = random.random() + numpy.random.rand()
        return self.second(x) * noise + torch.randn(6) * 1e-3


def watched_backward(model: nn.Module, forward: Callable[[], Tensor]) -> float:
    capture = StepCapture(list(model.parameters()))
    with capture.forward():
        loss = forward()
    capture.backward(loss)
    capture.close()
    return loss.item()


def plain_backward(model: nn.Module, forward: Callable[[], Tensor]) -> float:
    loss = forward()
    loss.backward()
    return loss.item()


OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
}


def train(backward, optimizer_of) -> dict[str, object]:
    """Train from one seed; return all that a step leaves, of every step."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    model = Network()
    optimizer = optimizer_of(model.parameters())
    seen: dict[str, object] = {}
    for step in range(STEPS):
        x, target = torch.randn(8, 6), torch.randn(8, 6)
        optimizer.zero_grad()
        seen[f"loss {step}"] = backward(model, lambda x=x, t=target: F.mse_loss(model(x), t))
        for name, parameter in model.named_parameters():
            seen[f"{name}.grad {step}"] = parameter.grad.clone()
        optimizer.step()
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            seen[f"{name} {step}"] = tensor.detach().clone()
    for position, state in enumerate(optimizer.state.values()):
        seen |= {f"{name} of {position}": value for name, value in state.items()}
    seen["torch"] = torch.get_rng_state()
    seen["random"] = random.getstate()
    seen["numpy"] = numpy.random.get_state(legacy=False)["state"]["key"].tolist()
    return seen


@pytest.mark.parametrize("optimizer_of", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_watched_training_is_bit_identical(optimizer_of):
    plain, watched = train(plain_backward, optimizer_of), train(watched_backward, optimizer_of)
    assert plain.keys() == watched.keys()
    different = [name for name in plain if not same(plain[name], watched[name])]
    assert different == []


def same(one: object, other: object) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else one == other


def attributes(model: nn.Module) -> dict[str, object]:
    """Everything that is set on modules and parameters, hooks included."""
    found: dict[str, object] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            found[f"{path}.{name}"] = len(value) if isinstance(value, dict) else id(value)
    for path, parameter in model.named_parameters():
        found[f"{path} attributes"] = sorted(vars(parameter))
        found[f"{path} hooks"] = (
            parameter._backward_hooks,
            parameter._post_accumulate_grad_hooks,
            parameter.requires_grad,
            parameter._version,
        )
    return found


def test_nothing_is_set_on_the_model():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False))
    before = attributes(model)
    watched_backward(model, lambda: model(torch.randn(3, 4)).square().sum())
    assert attributes(model) == before


def test_captured_model_can_be_pickled_and_copied():
    model = Network()
    capture = StepCapture(list(model.parameters()))
    with capture.forward():
        loss = model(torch.randn(3, 6)).square().sum()
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied.first.weight, model.first.weight)
    capture.backward(loss)
    copied = copy.deepcopy(model)
    assert attributes(copied).keys() == attributes(model).keys()


class BoomError(Exception):
    pass


@pytest.mark.parametrize("where", ["outside", "module", "nested", "hook"])
def test_exception_in_the_forward_leaves_nothing_behind(where):
    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise BoomError

    def raise_in_hook(*_: object) -> None:
        raise BoomError

    inner = Raises() if where in ("module", "nested") else nn.Tanh()
    if where == "hook":
        inner.register_forward_hook(raise_in_hook)
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(inner) if where == "nested" else inner)
    capture = StepCapture(list(model.parameters()))
    with pytest.raises(BoomError), capture.forward():
        model(torch.randn(2, 4))
        raise BoomError
    assert torch._C._len_torch_function_stack() == 0


def test_caught_exception_closes_its_module_call(watch):
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.sin()
            raise BoomError

    class Recovers(nn.Module):
        def __init__(self):
            super().__init__()
            self.fails = nn.Sequential(Fails())
            self.works = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            try:
                x = self.fails(x)
            except BoomError:
                x = self.works(x).cos()
            return x.exp()

    model = Recovers()
    seen = watch(model, lambda: model(torch.randn(2, 4)).sum())
    assert seen.module("CosBackward0") == ["#0"]
    assert seen.module("ExpBackward0") == ["#0"]
    assert seen.module("AddmmBackward0") == ["works#0"]
    (works,) = seen.calls("works")
    assert seen.call_name(works.parent) == "#0"


def test_exception_in_backward_removes_every_hook():
    model = nn.ParameterList([torch.ones(())])  # additions save nothing that backward frees
    capture = StepCapture(list(model.parameters()))
    calls = []

    def fail(gradient: Tensor) -> Tensor:
        calls.append(1)
        raise BoomError

    with capture.forward():
        hidden = model[0] + 1
        handle = hidden.register_hook(fail)
        loss = hidden + hidden
    with pytest.raises(BoomError):
        capture.backward(loss)
    handle.remove()
    capture.close()
    # Nothing of the capture is left in the graph.
    loss.backward()
    assert model[0].grad == 2
    assert len(calls) == 1


def test_second_backward_through_the_graph_is_not_watched_any_more():
    x = torch.ones((), requires_grad=True)
    capture = StepCapture([x])
    with capture.forward():
        loss = x + x
    measured = capture.backward(loss)
    arrived = list(measured.arrived)
    loss.backward()
    assert measured.arrived == arrived


def test_modules_of_another_thread_are_left_out(watch):
    model, other = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))

    def forward() -> Tensor:
        thread = threading.Thread(target=lambda: other(torch.randn(2, 4)).sum().backward())
        thread.start()
        thread.join()
        return model(torch.randn(2, 4)).sum()

    seen = watch(model, forward)
    assert [seen.call_name(call.index) for call in seen.recording.calls] == ["#0"]
    assert other[0].weight.grad is not None


def test_capture_works_in_a_thread():
    found = []

    def work() -> None:
        model = nn.Linear(3, 1, bias=False)
        capture = StepCapture(list(model.parameters()))
        with capture.forward():
            loss = model(torch.tensor([[1.0, 2.0, 2.0]])).sum()
        found.append((capture.backward(loss).parameter(0).norm, len(capture.modules.calls)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(3, 1)]


class Counting(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_function_modes_of_the_users_see_the_same_calls():
    model = nn.Linear(4, 4)

    def count(outer_watch: bool) -> int:
        mode = Counting()
        with mode:
            if outer_watch:
                watched_backward(model, lambda: model(torch.ones(2, 4)).sum())
            else:
                model(torch.ones(2, 4)).sum()
        return mode.count

    forward_calls = count(outer_watch=False)
    assert forward_calls > 0
    inner = Counting()
    capture = StepCapture(list(model.parameters()))
    with capture.forward(), inner:
        loss = model(torch.ones(2, 4)).sum()
    capture.backward(loss)
    assert inner.count == forward_calls


def test_default_device_and_grad_mode_inside_the_forward(watch):
    model = nn.Linear(4, 4)

    def forward() -> Tensor:
        with torch.device("cpu"):
            hidden = model(torch.ones(2, 4))
        with torch.no_grad():
            scale = hidden.abs().max()
        with torch.inference_mode():
            torch.ones(3) * 2
        return (hidden / scale).sum()

    assert watch(model, forward).parameter("weight").reach == "gradient"


def test_no_tensor_outlives_the_capture():
    model = Network()
    alive: list[weakref.ref[Tensor]] = []

    def step() -> tuple[object, ...]:
        capture = StepCapture(list(model.parameters()))
        with capture.forward():
            hidden = model(torch.randn(8, 6))
            cut = hidden.detach()
            loss = F.mse_loss(hidden, torch.randn(8, 6)) + cut.sum() * 0
        hidden.register_hook(lambda gradient: alive.append(weakref.ref(gradient)))
        measured = capture.backward(loss)
        alive.extend(weakref.ref(tensor) for tensor in (hidden, cut, loss))
        capture.close()
        return measured.numbers, measured

    kept = step()
    gc.collect()
    assert len(alive) == 4
    assert [reference() for reference in alive if reference() is not None] == []
    assert kept[1].parameter(0) is not None


def test_tensors_are_freed_without_the_garbage_collector():
    """Reference counts alone free the graph, as they do without gradscope."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    alive: list[weakref.ref[Tensor]] = []

    def step() -> None:
        capture = StepCapture(list(model.parameters()))
        with capture.forward():
            hidden = model(torch.randn(8, 4))
            loss = hidden.square().sum()
        capture.backward(loss)
        capture.close()
        alive.extend((weakref.ref(hidden), weakref.ref(loss)))

    gc.collect()
    gc.disable()
    try:
        step()
        assert [reference() for reference in alive if reference() is not None] == []
    finally:
        gc.enable()


def test_deep_graphs_are_released():
    x = torch.ones(2, requires_grad=True)
    capture = StepCapture([x])
    with capture.forward():
        y = x
        for _ in range(graph.DEEP * 3):
            y = y * 1.0
        loss = y.sum()
    capture.backward(loss)
    capture.close()
    # In torch 2.9 a graph does not hold the Python objects of its nodes; later it does.
    are_held = sys.getrefcount(loss.grad_fn) > 1
    assert len(graph._waiting) == are_held
    del y, loss
    graph.free_the_dead()
    assert graph._waiting == []


def test_measurements_hold_no_tensor():
    model = nn.Linear(4, 4)
    capture = StepCapture(list(model.parameters()))
    with capture.forward():
        loss = model(torch.ones(2, 4)).sum()
    measured = capture.backward(loss)
    capture.close()
    stats = [measured.numbers[key] for key in measured.numbers]
    pickle.loads(pickle.dumps(stats))
    held = [bucket for bucket, _ in measured.numbers._positions.values()]
    assert all(bucket.sample is None for bucket in held)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interruption_leaves_nothing_behind(error):
    capture = StepCapture([])
    with pytest.raises(error), capture.forward():
        raise error
