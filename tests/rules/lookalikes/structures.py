"""Ways to build and train a model: sharing, precision, inputs, optimizers, derivatives as terms."""

import copy

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from tests.rules.lookalikes.case import Step, adam, classification, lookalikes, mlp, regression


def _with_optimizer(step: Step, optimizer: torch.optim.Optimizer) -> Step:
    return Step(model=step.model, batch=step.batch, loss_fn=step.loss_fn, optimizer=optimizer)


def tied_autoencoder() -> Step:
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(16, 8)
            self.bias = nn.Parameter(torch.zeros(16))

        def forward(self, x):
            return functional.linear(self.encoder(x).tanh(), self.encoder.weight.T, self.bias)

    model, x = Tied(), torch.randn(32, 16)
    return Step(model=model, batch=(x, x), loss_fn=functional.mse_loss, optimizer=adam(model))


def shared_layers() -> Step:
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.layer, self.head = nn.Linear(16, 32), mlp(32, 64, 32), nn.Linear(32, 4)
            self.norm = nn.LayerNorm(32)

        def forward(self, x):
            x = self.embed(x)
            for _ in range(12):
                x = x + self.layer(self.norm(x))
            return self.head(x)

    return classification(Shared(), 16)


def cloned_layers() -> Step:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)

    class Cloned(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(4))
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            for one in self.layers:
                x = one(x)
            return self.head(x.mean(1))

    return classification(Cloned(), 6, 16)


def siamese() -> Step:
    def loss_fn(model, batch):
        first, second, same = batch
        distance = functional.pairwise_distance(model(first), model(second))
        return (same * distance**2 + (1 - same) * (1 - distance).clamp(min=0) ** 2).mean()

    model = mlp(16, 32, 8)
    batch = (torch.randn(32, 16), torch.randn(32, 16), (torch.rand(32) < 0.5).float())
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def graph_with_isolated_nodes() -> Step:
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 16)])
            self.head = nn.Linear(16, 4)

        def forward(self, x, adjacent):
            degree = adjacent.sum(1, keepdim=True).clamp(min=1)
            for layer in self.layers:
                x = functional.relu(layer(x + adjacent @ x / degree))
            return self.head(x)

    def loss_fn(model, batch):
        x, adjacent, labels, train = batch
        return functional.cross_entropy(model(x, adjacent)[train], labels[train])

    adjacent = (torch.rand(40, 40) < 0.05).float()
    adjacent[30:] = 0
    adjacent[:, 30:] = 0
    model = Graph()
    batch = (torch.randn(40, 8), adjacent, torch.arange(40) % 4, torch.rand(40) < 0.3)
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def deep_set_with_maximum() -> Step:
    class Set(nn.Module):
        def __init__(self):
            super().__init__()
            self.each, self.whole = mlp(3, 32, 64), mlp(64, 32, 4)

        def forward(self, points):
            return self.whole(self.each(points).amax(dim=1))

    return classification(Set(), 50, 3)


def radial_basis_functions() -> Step:
    class Rbf(nn.Module):
        def __init__(self):
            super().__init__()
            self.centres = nn.Parameter(torch.randn(20, 4))
            self.log_width = nn.Parameter(torch.zeros(20))
            self.out = nn.Linear(20, 1)

        def forward(self, x):
            distances = (x[:, None] - self.centres).square().sum(-1)
            return self.out(torch.exp(-distances / (2 * self.log_width.exp() ** 2)))

    return regression(Rbf(), 4)


def squeeze_and_excitation() -> Step:
    class Squeeze(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
            self.norm, self.head = nn.BatchNorm2d(16), nn.Linear(16, 4)
            self.gate = nn.Sequential(
                nn.Linear(16, 4), nn.ReLU(True), nn.Linear(4, 16), nn.Sigmoid()
            )

        def forward(self, x):
            x = functional.relu(self.norm(self.conv(x)))
            return self.head((x * self.gate(x.mean((2, 3)))[:, :, None, None]).mean((2, 3)))

    return classification(Squeeze(), 3, 8, 8)


def biases_before_normalisation() -> Step:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.InstanceNorm2d(8),
        nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(8, 8), nn.ReLU(), nn.Flatten(),
        nn.Linear(32, 16), nn.LayerNorm(16, elementwise_affine=False), nn.Linear(16, 4),
    )  # fmt: skip
    return classification(net, 3, 8, 8)


def parameter_containers() -> Step:
    class Containers(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList(nn.Parameter(torch.randn(16, 16) / 4) for _ in range(3))
            self.named = nn.ParameterDict({"out": nn.Parameter(torch.randn(16, 4) / 4)})

        def forward(self, x):
            for weight in self.weights:
                x = (x @ weight).relu()
            return x @ self.named["out"]

    return classification(Containers(), 16)


def hypernetwork() -> Step:
    class Hyper(nn.Module):
        def __init__(self):
            super().__init__()
            self.code = nn.Parameter(torch.randn(8))
            self.make = mlp(8, 32, 16 * 4 + 4)

        def forward(self, x):
            made = self.make(self.code)
            return functional.linear(x, made[:64].view(4, 16) / 4, made[64:])

    return classification(Hyper(), 16)


def meta_learning() -> Step:
    class Maml(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(1, 32, 32, 1, activation=nn.Tanh)

    def loss_fn(model, batch):
        (x, y), (x2, y2) = batch
        fast = dict(model.net.named_parameters())
        for _ in range(2):
            inner = functional.mse_loss(functional_call(model.net, fast, (x,)), y)
            slopes = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
            fast = {name: p - 0.05 * g for (name, p), g in zip(fast.items(), slopes, strict=True)}
        return functional.mse_loss(functional_call(model.net, fast, (x2,)), y2)

    model, x, x2 = Maml(), torch.rand(10, 1), torch.rand(10, 1)
    batch = ((x, (5 * x).sin()), (x2, (5 * x2).sin()))
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def physics_informed() -> Step:
    def loss_fn(model, batch):
        inside, edge = batch
        x = inside.clone().requires_grad_(True)
        u = model(x)
        (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (d2u,) = torch.autograd.grad(du.sum(), x, create_graph=True)
        return (d2u + torch.pi**2 * torch.sin(torch.pi * x)).square().mean() + model(
            edge
        ).square().mean()

    model = mlp(1, 32, 32, 32, 1, activation=nn.Tanh)
    batch = (torch.rand(64, 1), torch.tensor([[0.0], [1.0]]))
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def forces_from_an_energy() -> Step:
    class Potential(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(1, 32, 32, 1, activation=nn.SiLU)

        def forward(self, positions):
            gap = positions[:, None] - positions[None]
            near = (gap.square().sum(-1) + torch.eye(len(positions))).sqrt()
            other = 1 - torch.eye(len(positions))
            return (self.net(near[..., None]).squeeze(-1) * other).sum() / 2

    def loss_fn(model, batch):
        positions, forces = batch
        positions = positions.requires_grad_(True)
        (slope,) = torch.autograd.grad(model(positions), positions, create_graph=True)
        return functional.mse_loss(-slope, forces)

    model = Potential()
    batch = (torch.randn(10, 3), torch.randn(10, 3))
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def neural_differential_equation() -> Step:
    class Ode(nn.Module):
        def __init__(self):
            super().__init__()
            self.field, self.head = mlp(16, 32, 16, activation=nn.Tanh), nn.Linear(16, 4)

        def forward(self, x):
            for _ in range(20):
                middle = x + 0.025 * self.field(x)
                x = x + 0.05 * self.field(middle)
            return self.head(x)

    return classification(Ode(), 16)


def deep_equilibrium() -> Step:
    class Equilibrium(nn.Module):
        def __init__(self):
            super().__init__()
            self.inject, self.layer, self.head = (
                nn.Linear(16, 16),
                nn.Linear(16, 16),
                nn.Linear(16, 4),
            )

        def forward(self, x):
            injected = self.inject(x)
            z = torch.zeros_like(injected)
            with torch.no_grad():
                for _ in range(20):
                    z = torch.tanh(0.5 * self.layer(z) + injected)
            return self.head(torch.tanh(0.5 * self.layer(z) + injected))

    return classification(Equilibrium(), 16)


def float64() -> Step:
    net = mlp(16, 32, 4, activation=nn.Tanh).double()
    batch = (torch.randn(16, 16, dtype=torch.float64), torch.arange(16) % 4)
    return Step(model=net, batch=batch, loss_fn=functional.cross_entropy, optimizer=adam(net))


def bfloat16() -> Step:
    net = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 4)).bfloat16()
    batch = (torch.randn(16, 16, dtype=torch.bfloat16), torch.arange(16) % 4)
    return Step(
        model=net,
        batch=batch,
        loss_fn=lambda out, goal: functional.cross_entropy(out.float(), goal),
        optimizer=adam(net, 1e-2),
    )


def autocast() -> Step:
    def loss_fn(model, batch):
        x, target = batch
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return functional.cross_entropy(model(x), target)

    net = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 4))
    batch = (torch.randn(16, 16), torch.arange(16) % 4)
    return Step(model=net, batch=batch, loss_fn=loss_fn, optimizer=adam(net))


def momentum_with_rate_a_tenth() -> Step:
    step = classification(
        nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4)), 16
    )
    optimizer = torch.optim.SGD(step.model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    return _with_optimizer(step, optimizer)


def fine_tuning_rate() -> Step:
    step = classification(mlp(16, 64, 64, 4, activation=nn.GELU), 16)
    return _with_optimizer(step, torch.optim.AdamW(step.model.parameters(), lr=1e-5))


def groups_with_and_without_decay() -> Step:
    step = classification(nn.Sequential(mlp(16, 32, 32), nn.LayerNorm(32), nn.Linear(32, 4)), 16)
    decayed = [p for p in step.model.parameters() if p.ndim > 1]
    others = [p for p in step.model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return _with_optimizer(step, torch.optim.AdamW(groups, lr=1e-3))


def warming_up() -> Step:
    step = classification(mlp(16, 64, 4), 16)
    optimizer = torch.optim.AdamW(step.model.parameters(), lr=1e-3)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda number: min(1.0, number / 100))
    return _with_optimizer(step, optimizer)


def whole_model_in_the_optimizer_with_frozen_layers() -> Step:
    net = mlp(16, 32, 32, 4)
    net[0].requires_grad_(False)
    step = classification(net, 16)
    return _with_optimizer(step, torch.optim.Adam(net.parameters(), lr=1e-3))


def in_place_operations() -> Step:
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = (
                nn.Linear(16, 32),
                nn.Linear(32, 32),
                nn.Linear(32, 4),
            )

        def forward(self, x):
            x = functional.relu_(self.first(x))
            out = self.second(x)
            out += x
            out.mul_(0.5)
            out[:, :4] = out[:, :4] * 2
            return self.third(out.relu_())

    return classification(InPlace(), 16)


def converged() -> Step:
    step = classification(mlp(16, 64, 4), 16)
    optimizer = torch.optim.Adam(step.model.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        step.loss_fn(step.model(step.batch[0]), step.batch[1]).backward()
        optimizer.step()
    optimizer.zero_grad()
    return _with_optimizer(step, optimizer)


def one_example() -> Step:
    return classification(
        nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4)), 16, batch=1
    )


def large_inputs_that_are_normalised() -> Step:
    class Tabular(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.net = nn.BatchNorm1d(6), mlp(6, 32, 4)

        def forward(self, x):
            return self.net(self.norm(x))

    model = Tabular()
    x = torch.randn(64, 6) * torch.tensor([1.0, 1e2, 1e4, 1e-2, 1e5, 1.0]) + 1e3
    return Step(
        model=model,
        batch=(x, torch.arange(64) % 4),
        loss_fn=functional.cross_entropy,
        optimizer=adam(model),
    )


def pixels_up_to_255() -> Step:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 4),
    )
    x = torch.randint(0, 256, (16, 3, 8, 8)).float()
    return Step(
        model=net,
        batch=(x, torch.arange(16) % 4),
        loss_fn=functional.cross_entropy,
        optimizer=adam(net),
    )


def regression_with_a_column_of_targets() -> Step:
    return regression(mlp(8, 32, 1), 8)


def cnn_for_digits() -> Step:
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10), nn.LogSoftmax(1),
    )  # fmt: skip
    x = torch.rand(8, 1, 28, 28)
    return Step(
        model=net, batch=(x, torch.arange(8)), loss_fn=functional.nll_loss, optimizer=adam(net)
    )


STRUCTURES = lookalikes(
    tied_autoencoder,
    shared_layers,
    cloned_layers,
    siamese,
    graph_with_isolated_nodes,
    deep_set_with_maximum,
    radial_basis_functions,
    squeeze_and_excitation,
    biases_before_normalisation,
    parameter_containers,
    hypernetwork,
    meta_learning,
    physics_informed,
    forces_from_an_energy,
    neural_differential_equation,
    deep_equilibrium,
    float64,
    bfloat16,
    autocast,
    momentum_with_rate_a_tenth,
    fine_tuning_rate,
    groups_with_and_without_decay,
    warming_up,
    whole_model_in_the_optimizer_with_frozen_layers,
    in_place_operations,
    converged,
    one_example,
    large_inputs_that_are_normalised,
    pixels_up_to_255,
    regression_with_a_column_of_targets,
    cnn_for_digits,
)
