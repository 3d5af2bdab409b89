"""Gradients that are not the derivative of the forward, and selections of what learns."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.lookalikes.case import Step, adam, classification, lookalikes, mlp


class VectorQuantizer(nn.Module):
    """Replaces a code by the nearest of a codebook, and hands its gradient on unchanged."""

    def __init__(self, codes: int, width: int):
        super().__init__()
        self.codebook = nn.Embedding(codes, width)
        nn.init.uniform_(self.codebook.weight, -1 / codes, 1 / codes)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        distances = torch.cdist(z, self.codebook.weight)
        nearest = self.codebook(distances.argmin(dim=1))
        loss = functional.mse_loss(nearest, z.detach()) + 0.25 * functional.mse_loss(
            z, nearest.detach()
        )
        return z + (nearest - z).detach(), loss


def vector_quantised_autoencoder() -> Step:
    class VqVae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = mlp(16, 32, 8)
            self.quantizer = VectorQuantizer(64, 8)
            self.decoder = mlp(8, 32, 16)

        def forward(self, x):
            code, loss = self.quantizer(self.encoder(x))
            return {"reconstruction": self.decoder(code), "commitment": loss}

    def loss_fn(output, target):
        return functional.mse_loss(output["reconstruction"], target) + output["commitment"]

    model, x = VqVae(), torch.randn(32, 16)
    return Step(model=model, batch=(x, x), loss_fn=loss_fn, optimizer=adam(model))


def exponential_codebook() -> Step:
    class Quantizer(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = mlp(16, 32, 8), mlp(8, 32, 16)
            self.register_buffer("codebook", torch.randn(32, 8))
            self.register_buffer("counts", torch.ones(32))

        def forward(self, x):
            z = self.encoder(x)
            with torch.no_grad():
                index = torch.cdist(z, self.codebook).argmin(1)
                chosen = functional.one_hot(index, 32).float()
                self.counts.mul_(0.99).add_(chosen.sum(0), alpha=0.01)
            quantised = self.codebook[index]
            self.commitment = functional.mse_loss(z, quantised)
            return self.decoder(z + (quantised - z).detach())

    def loss_fn(model, batch):
        return functional.mse_loss(model(batch), batch) + 0.25 * model.commitment

    model = Quantizer()
    return Step(model=model, batch=torch.randn(32, 16), loss_fn=loss_fn, optimizer=adam(model))


def gumbel_straight_through() -> Step:
    class Chooser(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = mlp(16, 32, 8)
            self.decoder = mlp(8, 32, 4)

        def forward(self, x):
            return self.decoder(functional.gumbel_softmax(self.encoder(x), tau=1.0, hard=True))

    return classification(Chooser(), 16)


def binarised_weights() -> Step:
    class BinaryLinear(nn.Linear):
        def forward(self, x):
            binary = self.weight.sign() * self.weight.abs().mean()
            return functional.linear(x, (binary - self.weight).detach() + self.weight, self.bias)

    net = nn.Sequential(
        nn.Linear(16, 32), nn.Hardtanh(), BinaryLinear(32, 32), nn.Hardtanh(), BinaryLinear(32, 4)
    )
    return classification(net, 16)


class SignSte(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1)


def binarised_activations_by_a_function() -> Step:
    class Binary(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)
            self.norm = nn.BatchNorm1d(32)

        def forward(self, x):
            return self.second(SignSte.apply(self.norm(self.first(x))))

    return classification(Binary(), 16)


class RoundSte(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def quantisation_aware_training() -> Step:
    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 4)])
            self.steps = nn.ParameterList(nn.Parameter(torch.tensor(0.05)) for _ in range(2))

        def forward(self, x):
            for layer, step in zip(self.layers, self.steps, strict=True):
                weight = RoundSte.apply((layer.weight / step).clamp(-128, 127)) * step
                x = functional.linear(functional.relu(x), weight, layer.bias)
            return x

    return classification(Quantised(), 16)


class SurrogateSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1 + 10 * v.abs()) ** 2


def spiking_network() -> Step:
    class Spiking(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

        def forward(self, x):
            potential, out = torch.zeros(len(x), 32), 0.0
            for _ in range(8):
                potential = 0.9 * potential + self.first(x)
                spike = SurrogateSpike.apply(potential - 1)
                potential = potential - spike.detach()
                out = out + self.second(spike)
            return out / 8

    return classification(Spiking(), 16)


class ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


def domain_adversarial() -> Step:
    class Dann(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = mlp(16, 32, 16)
            self.label, self.domain = nn.Linear(16, 4), mlp(16, 16, 2)

        def forward(self, x):
            z = self.features(x)
            return self.label(z), self.domain(ReverseGradient.apply(z, 0.3))

    def loss_fn(output, target):
        label, domain = output
        side = torch.arange(len(domain)) % 2
        return functional.cross_entropy(label, target) + functional.cross_entropy(domain, side)

    model = Dann()
    batch = (torch.randn(16, 16), torch.arange(16) % 4)
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


class ClippedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-0.01, 0.01)


def gradient_clipped_inside() -> Step:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

        def forward(self, x):
            return self.second(ClippedGradient.apply(self.first(x)).relu())

    return classification(Net(), 16)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class Reversible(torch.autograd.Function):
    """A coupling that recomputes its inputs from its outputs."""

    @staticmethod
    def forward(ctx, a, b, f, g, *parameters):
        ctx.f, ctx.g = f, g
        with torch.no_grad():
            y = a + f(b)
            z = b + g(y)
        ctx.save_for_backward(y, z)
        return y, z

    @staticmethod
    def backward(ctx, dy, dz):
        y, z = ctx.saved_tensors
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            gy = ctx.g(y)
            b = (z - gy).detach().requires_grad_()
            fb = ctx.f(b)
        f_parameters, g_parameters = list(ctx.f.parameters()), list(ctx.g.parameters())
        from_g = torch.autograd.grad(gy, [y, *g_parameters], dz)
        dy = dy + from_g[0]
        from_f = torch.autograd.grad(fb, [b, *f_parameters], dy)
        return dy, dz + from_f[0], None, None, *from_f[1:], *from_g[1:]


def reversible_network() -> Step:
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.g = mlp(8, 16, 8, activation=nn.Tanh), mlp(8, 16, 8, activation=nn.Tanh)

        def forward(self, a, b):
            return Reversible.apply(
                a, b, self.f, self.g, *self.f.parameters(), *self.g.parameters()
            )

    class RevNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(3))
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            a, b = x.chunk(2, dim=1)
            for block in self.blocks:
                a, b = block(a, b)
            return self.head(torch.cat([a, b], dim=1))

    return classification(RevNet(), 16)


def own_swish() -> Step:
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)])

        def forward(self, x):
            for layer in self.layers[:-1]:
                x = Swish.apply(layer(x))
            return self.layers[-1](x)

    return classification(Net(), 16)


class Switch(nn.Module):
    """Sends each row to the expert that its router likes best, with a loss that balances."""

    def __init__(self, width: int, experts: int, top: int = 1):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(mlp(width, 2 * width, width) for _ in range(experts))
        self.top = top

    def forward(self, x: Tensor) -> Tensor:
        probabilities = self.router(x).softmax(-1)
        gates, chosen = probabilities.topk(self.top, dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, position = torch.where(chosen == number)
            if len(rows):
                out = out.index_add(0, rows, gates[rows, position, None] * expert(x[rows]))
        return x + out


def mixture_with_idle_experts() -> Step:
    net = nn.Sequential(nn.Linear(16, 16), Switch(16, 12), nn.Linear(16, 4))
    return classification(net, 16, batch=6)


def mixture_with_balancing_loss() -> Step:
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.switch, self.head = Switch(16, 4, top=2), nn.Linear(16, 4)

        def forward(self, x):
            probabilities = self.switch.router(x).softmax(-1)
            share = functional.one_hot(probabilities.argmax(-1), 4).float().mean(0)
            self.balance = 4 * (share * probabilities.mean(0)).sum()
            return self.head(self.switch(x))

    def loss_fn(model, batch):
        x, target = batch
        return functional.cross_entropy(model(x), target) + 0.01 * model.balance

    model = Mixture()
    batch = (torch.randn(32, 16), torch.arange(32) % 4)
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def layer_drop() -> Step:
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(mlp(16, 32, 16) for _ in range(6))
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            for block in self.blocks:
                if self.training and torch.rand(()) < 0.3:
                    continue
                x = x + block(x)
            return self.head(x)

    return classification(Dropped(), 16)


def stochastic_depth() -> Step:
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(mlp(16, 32, 16) for _ in range(6))
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            for block in self.blocks:
                keep = torch.empty(len(x), 1).bernoulli_(0.7) / 0.7
                x = x + keep * block(x)
            return self.head(x)

    return classification(Dropped(), 16)


def heavy_dropout() -> Step:
    net = nn.Sequential(
        nn.Dropout(0.5), nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.9),
        nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4),
    )  # fmt: skip
    return classification(net, 16)


ESTIMATORS = lookalikes(
    vector_quantised_autoencoder,
    exponential_codebook,
    gumbel_straight_through,
    binarised_weights,
    binarised_activations_by_a_function,
    quantisation_aware_training,
    spiking_network,
    domain_adversarial,
    gradient_clipped_inside,
    reversible_network,
    own_swish,
    mixture_with_idle_experts,
    mixture_with_balancing_loss,
    layer_drop,
    stochastic_depth,
    heavy_dropout,
)
