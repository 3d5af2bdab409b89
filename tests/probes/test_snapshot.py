"""A model is restored bit for bit, whatever a block does to it."""

import collections
import copy
import random
from dataclasses import dataclass
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import Tensor, nn

from gradscope.probes.snapshot import preserved


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().sum().backward()
    optimizer.step()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "tensor lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True),
}


def optimizer_state(optimizer: torch.optim.Optimizer) -> object:
    """Everything an optimizer holds, as plain comparable values."""

    def plain(value: object) -> object:
        if isinstance(value, Tensor):
            return (id(value), bits(value))
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return (
        [(id(key), plain(value)) for key, value in optimizer.state.items()],
        plain(optimizer.param_groups),
    )


@pytest.mark.parametrize("build", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_optimizer_and_parameters(build, steps_before):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    optimizer = build(model.parameters())
    for _ in range(steps_before):
        step(model, optimizer)
    state = optimizer_state(optimizer)
    tensors = {id(t): bits(t) for t in [*model.parameters(), *model.buffers()]}
    with preserved(model, optimizer):
        for _ in range(3):
            step(model, optimizer)
        optimizer.param_groups[0]["lr"] *= 7
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    assert optimizer_state(optimizer) == state
    assert {id(t): bits(t) for t in [*model.parameters(), *model.buffers()]} == tensors


def test_training_goes_on_as_if_nothing_had_happened():
    def train(*, probe: bool) -> list[bytes]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            step(model, optimizer)
            if probe:
                with preserved(model, optimizer):
                    step(model, optimizer)
        return [bits(t) for t in [*model.parameters(), *model.buffers(), torch.get_rng_state()]]

    assert train(probe=True) == train(probe=False)


def test_gradients_none_zero_and_values():
    model = nn.ParameterList([torch.ones(2), torch.ones(2), torch.ones(2)])
    model[1].grad, model[2].grad = torch.zeros(2), torch.full((2,), 3.0)
    kept = [parameter.grad for parameter in model]
    with preserved(model, None):
        sum((parameter * 2).sum() for parameter in model).backward()  # adds to them in place
        model[1].grad = None
    assert model[0].grad is None
    assert all(p.grad is grad for p, grad in zip(model, kept, strict=True))
    assert [grad.tolist() for grad in kept[1:]] == [[0, 0], [3, 3]]


def test_requires_grad_and_train_flags():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    model[0].weight.requires_grad_(False)
    model[1].eval()
    with preserved(model, None):
        model.requires_grad_(True)
        model[0].bias.requires_grad_(False)
        model.eval()
        model[1].train()
    assert [p.requires_grad for p in model.parameters()] == [False, True]
    assert [m.training for m in model.modules()] == [True, True, False]


def test_parameters_replaced_resized_or_retyped():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    weights = [layer.weight for layer in model]
    values = [bits(weight) for weight in weights]
    with preserved(model, None):
        model[0].weight = nn.Parameter(torch.zeros(5))
        model[1].weight.data = torch.zeros(7, dtype=torch.float64)
        del model[1].bias
        model.add_module("2", nn.ReLU())
    assert [layer.weight for layer in model] == weights
    assert [bits(weight) for weight in weights] == values
    assert len(model) == 2
    assert model[1].bias is not None


def test_bits_that_compare_equal_are_restored_too():
    model = nn.ParameterList([torch.tensor([0.0, -0.0, float("nan")])])
    before = bits(model[0])
    with preserved(model, None), torch.no_grad():
        model[0].neg_()
    assert bits(model[0]) == before


@dataclass
class Settings:
    rate: float
    history: list[int]
    scale: Tensor


class Stateful(nn.Module):
    """Keeps what it does in every way that a module can."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("lost", torch.zeros(2), persistent=False)
        self.tensor = torch.zeros(3)
        self.calls = 0
        self.log: list[int] = []
        self.history = {"losses": [0.0], "deep": {"count": 1}}
        self.pair = ([1], torch.zeros(2))
        self.queue = collections.deque([1, 2], maxlen=2)
        self.counter = collections.Counter(a=1)
        self.lists = collections.defaultdict(list)
        self.seen = {1}
        self.array = numpy.zeros(3)
        self.settings = Settings(0.1, [1], torch.zeros(2))
        self.namespace = SimpleNamespace(count=0)
        self.generator = torch.Generator().manual_seed(3)
        self.numpy_generator = numpy.random.default_rng(0)
        self.numpy_state = numpy.random.RandomState(0)
        self.python_generator = random.Random(4)
        self.hidden = [nn.Linear(3, 3), nn.BatchNorm1d(3)]
        self.mine = self.log

    def forward(self, x: Tensor) -> Tensor:
        for tensor in (self.kept, self.lost, self.tensor, self.pair[1], self.settings.scale):
            tensor += 1
        self.calls += 1
        self.log.append(self.calls)
        self.history["losses"].append(1.0)
        self.history["deep"]["count"] += 1
        self.pair[0].clear()
        self.queue.append(3)
        self.counter["a"] += 1
        self.lists["new"].append(1)
        self.seen.add(self.calls + 5)
        self.array += 1
        self.settings.rate *= 2
        self.settings.history.append(2)
        self.namespace.count += 1
        self.created = torch.ones(2)
        torch.rand(2, generator=self.generator)
        self.numpy_generator.random()
        self.numpy_state.rand()
        self.python_generator.random()
        for layer in self.hidden:
            x = layer(x)
        return self.linear(x)

    def state(self) -> dict[str, object]:
        hidden = [*self.hidden[0].parameters(), *self.hidden[1].buffers()]
        plain = {name: copy.deepcopy(value) for name, value in vars(self).items() if name in _PLAIN}
        return plain | {
            "tensors": [bits(t) for t in (self.tensor, self.pair[1], self.settings.scale)],
            "buffers": [bits(t) for t in self.buffers()],
            "hidden": [bits(t) for t in hidden],
            "hidden gradients": [layer.grad for layer in self.hidden[0].parameters()],
            "array": self.array.tolist(),
            "settings": (self.settings.rate, list(self.settings.history)),
            "created": hasattr(self, "created"),
            "generator": bits(self.generator.get_state()),
            "numpy": repr(self.numpy_generator.bit_generator.state),
            "numpy state": repr(self.numpy_state.get_state(legacy=False)),
            "python": self.python_generator.getstate(),
            "one list": self.mine is self.log,
            "first of pair": list(self.pair[0]),
        }


_PLAIN = (
    "calls",
    "log",
    "history",
    "queue",
    "counter",
    "lists",
    "seen",
    "namespace",
)


def test_state_of_every_kind():
    model = Stateful()
    before = model.state()
    with preserved(model, None):
        for _ in range(2):
            model(torch.randn(4, 3)).sum().backward()
        assert model.state() != before
    assert model.state() == before
    assert all(parameter.grad is None for parameter in model.parameters())


def test_random_states():
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    with preserved(nn.Identity(), None):
        torch.rand(3), random.random(), numpy.random.rand()
        torch.manual_seed(5)
    found = torch.rand(1).item(), random.random(), numpy.random.rand()
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    assert found == (torch.rand(1).item(), random.random(), numpy.random.rand())


def test_batch_and_other_objects():
    batch = {"x": torch.ones(2), "more": [torch.ones(2, requires_grad=True), (torch.ones(1),)]}
    criterion = nn.Sequential(nn.Linear(2, 2))
    weights = bits(criterion[0].weight)
    with preserved(nn.Identity(), None, batch, criterion):
        batch["x"] *= 5
        batch["more"][1][0].zero_()
        batch["more"][0].sum().backward()
        criterion(torch.ones(1, 2)).sum().backward()
        with torch.no_grad():
            criterion[0].weight.zero_()
        batch["new"] = 1
    assert batch.keys() == {"x", "more"}
    assert batch["x"].tolist() == [1, 1]
    assert batch["more"][1][0].tolist() == [1]
    assert batch["more"][0].grad is None
    assert bits(criterion[0].weight) == weights
    assert criterion[0].weight.grad is None


def test_exception_inside_the_block_restores_too():
    model = nn.Linear(2, 2)
    before = bits(model.weight)
    with pytest.raises(ZeroDivisionError), preserved(model, None), torch.no_grad():
        model.weight.zero_()
        raise ZeroDivisionError
    assert bits(model.weight) == before


def test_cycles_and_shared_containers_are_met_once():
    model = nn.Linear(2, 2)
    ring: list[object] = [model]
    ring.append(ring)
    model.ring = ring
    with preserved(model, None):
        ring.clear()
    assert ring[0] is model
    assert ring[1] is ring


def test_tied_weights_stay_tied():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with preserved(model, optimizer):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert model[1].weight is model[0].weight


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.ones(3, dtype=torch.complex64),
        lambda: torch.ones(3).bfloat16(),
        lambda: torch.ones(3, dtype=torch.bool),
        lambda: torch.zeros(0),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    ],
    ids=["sparse", "csr", "complex", "bfloat16", "bool", "empty", "nested"],
)
def test_tensors_of_any_kind(make):
    model = nn.Identity()
    model.tensor = make()
    before = model.tensor
    with preserved(model, None):
        before.zero_()
    expected = make()
    assert model.tensor is before
    if before.is_nested:
        before, expected = before.values(), expected.values()
    assert torch.equal(before.to_dense(), expected.to_dense())


def test_inference_and_meta_tensors():
    with torch.inference_mode():
        inference = torch.ones(2)
    batch = (inference, torch.ones(2, device="meta"))
    with preserved(nn.Identity(), None, batch):
        with torch.inference_mode():
            inference.mul_(2)
        batch[1].mul_(2)
    assert inference.tolist() == [1, 1]


def test_preserved_under_inference_mode():
    model = nn.Linear(2, 2)
    before = bits(model.weight)
    with (
        torch.inference_mode(),
        preserved(model, None),
        torch.inference_mode(mode=False),
        torch.no_grad(),
    ):
        model.weight.zero_()
    assert bits(model.weight) == before
    assert not model.weight.is_inference()


def test_views_and_expanded_buffers():
    model = nn.Module()
    base = torch.arange(6.0)
    model.base, model.view = base, base.view(2, 3)
    model.register_buffer("wide", torch.ones(1).expand(4))
    with preserved(model, None):
        base.mul_(2)
    assert base.tolist() == [0, 1, 2, 3, 4, 5]
    assert model.view.data_ptr() == base.data_ptr()


@pytest.mark.filterwarnings("ignore:.torch.jit", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    "compiled", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(3, 2))]
)
def test_scripted_modules(compiled):
    model = compiled(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    before = [bits(tensor) for tensor in model.state_dict().values()]
    with preserved(model, None):
        model(torch.randn(3, 2)).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
    assert [bits(tensor) for tensor in model.state_dict().values()] == before
    assert all(parameter.grad is None for parameter in model.parameters())
