"""Networks that each put one mechanism of autograd or nn.Module to work."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from tests.architectures.case import ArchitectureCase, Built


def regression(model: nn.Module, width: int = 8, out: int = 8) -> Built:
    return model, (torch.randn(4, width), torch.randn(4, out))


class IdleExperts(nn.Module):
    """Hard routing: the experts that no row chooses get no gradient at all."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        # The last two experts are out of reach.
        weights = self.router(x)[:, :2].softmax(dim=1)
        weight, chosen = weights.max(dim=1)
        output = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()
            if len(rows):
                output = output.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        return output


class CheckpointedStack(nn.Module):
    """Blocks whose forward runs again in backward, dropout included."""

    def __init__(self, *, reentrant: bool):
        super().__init__()
        self.reentrant = reentrant
        self.stem = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.3)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class TiedAutoencoder(nn.Module):
    """The decoder's weight is the encoder's, transposed; the last layer is the first, by name."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.zeros(8))
        self.head = nn.Linear(8, 8)
        self.head.weight = self.encoder.weight

    def forward(self, x: Tensor) -> Tensor:
        code = self.encoder(x).tanh()
        return self.head(functional.linear(code, self.encoder.weight.T, self.bias))


class SparseBags(nn.Module):
    """Sparse gradients, with rows that occur more than once."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(30, 8, sparse=True, mode="mean")
        self.table = nn.Embedding(30, 8, sparse=True)
        self.head = nn.Linear(8, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.bag(ids) + self.table(ids).sum(dim=1))


def sparse_embedding_bag() -> Built:
    return SparseBags(), (torch.randint(0, 5, (4, 6)), torch.randn(4, 8))


class SpectralFilter(nn.Module):
    """A learnt complex filter on the Fourier transform, and a complex linear layer."""

    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(5, dtype=torch.complex64))
        self.mix = nn.Linear(5, 5, dtype=torch.complex64)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x) * self.filter
        return torch.fft.irfft(self.mix(spectrum), n=8)


def parametrised() -> Built:
    return regression(
        nn.Sequential(
            weight_norm(nn.Linear(8, 8)), nn.Tanh(), spectral_norm(nn.Linear(8, 8)), nn.Linear(8, 8)
        )
    )


class Ternary(torch.autograd.Function):
    """Rounds to -1, 0, 1 and hands the gradient straight through."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(-1, 1).round()

    @staticmethod
    def backward(ctx, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1.5)


class QuantisedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = Ternary.apply(self.first(x))
        return functional.linear(hidden, Ternary.apply(self.second.weight * 3), self.second.bias)


class LowRankAdapter(nn.Module):
    """LoRA: frozen weights plus B A, where B starts at zero, so that A's gradient is zero too."""

    def __init__(self, base: nn.Linear, rank: int = 2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T


def lora() -> Built:
    layers = [LowRankAdapter(nn.Linear(8, 8)) for _ in range(2)]
    return regression(nn.Sequential(layers[0], nn.GELU(), layers[1]))


class PreNormResidual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


def pre_norm_100_layers() -> Built:
    return regression(nn.Sequential(*(PreNormResidual() for _ in range(100))))


class Siamese(nn.Module):
    """One tower, called on both inputs."""

    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return functional.cosine_similarity(self.tower(left), self.tower(right))


def siamese() -> Built:
    return Siamese(), (torch.randn(4, 8), torch.randn(4, 8), torch.ones(4))


@dataclass
class Prediction:
    mean: Tensor
    variance: Tensor
    comment: str


class GaussianHead(nn.Module):
    """Returns a dataclass of tensors and something else."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(8, 8)
        self.mean, self.variance = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Prediction:
        hidden = self.trunk(x).tanh()
        variance = functional.softplus(self.variance(hidden)) + 1e-3
        return Prediction(self.mean(hidden), variance, "of one layer")


def gaussian_loss(output: Prediction, target: Tensor) -> Tensor:
    return functional.gaussian_nll_loss(output.mean, target, output.variance)


class InPlaceViews(nn.Module):
    """Writes into views and into results, as hand-optimised code does."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu_()
        left, right = hidden.clone().split(4, dim=1)
        output = torch.empty_like(x)
        output[:, :4] = left * self.scale
        output[:, 4:] = right
        output.view(-1, 2, 4)[:, 0].mul_(2.0)
        output.add_(self.second(x)).clamp_(-3, 3)
        return output.t().contiguous().t()


class MixedPrecision(nn.Module):
    """A float64, a float32 and a bfloat16 layer after one another."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(8, 8, dtype=torch.float64)
        self.middle = nn.Linear(8, 8)
        self.narrow = nn.Linear(8, 8, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.middle(self.wide(x.double()).tanh().float())
        return self.narrow(hidden.bfloat16()).float()


class FrozenAndUnused(nn.Module):
    """A frozen backbone, a head that is never called, a branch behind a detach."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 8).requires_grad_(False)
        self.never_called = nn.Linear(8, 8)
        self.cut = nn.Linear(8, 8)
        self.head = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.backbone(x).relu()
        return self.head(hidden) + self.cut(hidden).detach()


class GradientInForward(nn.Module):
    """A gradient penalty: the loss needs the gradient of a gradient."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_(True)
        score = self.net(x)
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        return torch.cat([score, slope.norm(dim=1, keepdim=True)], dim=1)


MECHANISMS = (
    *(
        ArchitectureCase(name=name, build=build, loss=functional.mse_loss)
        for name, build in (
            ("idle_experts", lambda: regression(IdleExperts())),
            ("checkpoint_reentrant", lambda: regression(CheckpointedStack(reentrant=True))),
            ("checkpoint_non_reentrant", lambda: regression(CheckpointedStack(reentrant=False))),
            ("tied_autoencoder", lambda: regression(TiedAutoencoder())),
            ("sparse_embedding_bag", sparse_embedding_bag),
            ("complex_filter", lambda: regression(SpectralFilter())),
            ("parametrised", parametrised),
            ("straight_through", lambda: regression(QuantisedNet())),
            ("lora", lora),
            ("pre_norm_100_layers", pre_norm_100_layers),
            ("siamese", siamese),
            ("in_place_views", lambda: regression(InPlaceViews())),
            ("mixed_precision", lambda: regression(MixedPrecision())),
            ("frozen_and_unused", lambda: regression(FrozenAndUnused())),
            ("gradient_penalty", lambda: regression(GradientInForward(), out=2)),
        )
    ),
    ArchitectureCase(
        name="dataclass_output", build=lambda: regression(GaussianHead()), loss=gaussian_loss
    ),
)
