"""Networks whose gradients are small, zero or uneven at first because of how they are built."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.lookalikes.case import Step, adam, classification, lookalikes, mlp


class Residual(nn.Module):
    """Adds a branch, scaled by what it is given."""

    def __init__(self, branch: nn.Module, scale: Tensor | None = None):
        super().__init__()
        self.branch = branch
        self.scale = None if scale is None else nn.Parameter(scale)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.branch(x)
        return x + (branch if self.scale is None else self.scale * branch)


def _zero(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def _residual_mlp(depth: int, *, scale: Tensor | None = None, zero: bool = False) -> nn.Module:
    blocks = []
    for _ in range(depth):
        branch = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        if zero:
            _zero(branch[-1])
        blocks.append(Residual(branch, None if scale is None else scale.clone()))
    return nn.Sequential(nn.Linear(16, 32), *blocks, nn.LayerNorm(32), nn.Linear(32, 4))


def zero_initialised_branches() -> Step:
    return classification(_residual_mlp(6, zero=True), 16)


def rezero() -> Step:
    return classification(_residual_mlp(8, scale=torch.zeros(1)), 16)


def layer_scale() -> Step:
    return classification(_residual_mlp(8, scale=torch.full((32,), 1e-6)), 16)


def deep_residual_mlp() -> Step:
    return classification(_residual_mlp(40), 16)


def pre_norm_100_blocks() -> Step:
    return classification(_residual_mlp(100), 16)


class FixupBlock(nn.Module):
    """A residual block without normalisation, scaled for its depth."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(1)) for _ in range(4))
        self.scale = nn.Parameter(torch.ones(1))
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        nn.init.normal_(self.conv1.weight, std=(2 / (9 * width)) ** 0.5 * depth**-0.5)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d = self.biases
        out = functional.relu(self.conv1(x + a) + b)
        return functional.relu(x + self.scale * self.conv2(out + c) + d)


def fixup() -> Step:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        *(FixupBlock(8, 6) for _ in range(6)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        _zero(nn.Linear(8, 4)),
    )
    return classification(net, 3, 8, 8)


class BasicBlock(nn.Module):
    """A ResNet block whose last gain may begin at zero."""

    def __init__(self, width: int, *, zero: bool):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        if zero:
            nn.init.zeros_(self.bn2.weight)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


def _resnet(*, zero: bool) -> Step:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        *(BasicBlock(8, zero=zero) for _ in range(5)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    return classification(net, 3, 8, 8)


def resnet() -> Step:
    return _resnet(zero=False)


def zero_gamma_resnet() -> Step:
    return _resnet(zero=True)


class DitBlock(nn.Module):
    """A transformer block that the conditioning modulates; its gates begin at zero."""

    def __init__(self, width: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.mlp = mlp(width, 2 * width, width, activation=nn.GELU)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))
        _zero(self.modulation[-1])

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition)[:, None].chunk(
            6, -1
        )
        h = self.norm1(x) * (1 + scale1) + shift1
        x = x + gate1 * self.attention(h, h, h, need_weights=False)[0]
        h = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.mlp(h)


def _dit(*, zero_output: bool) -> Step:
    class Dit(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(8, 32)
            self.time = mlp(1, 32, 32, activation=nn.SiLU)
            self.blocks = nn.ModuleList(DitBlock(32) for _ in range(3))
            self.modulation = nn.Sequential(nn.SiLU(), _zero(nn.Linear(32, 64)))
            self.norm = nn.LayerNorm(32, elementwise_affine=False)
            self.out = nn.Linear(32, 8)
            if zero_output:
                _zero(self.out)

        def forward(self, x, t):
            condition = self.time(t)
            x = self.embed(x)
            for block in self.blocks:
                x = block(x, condition)
            shift, scale = self.modulation(condition)[:, None].chunk(2, -1)
            return self.out(self.norm(x) * (1 + scale) + shift)

    def loss_fn(model, batch):
        clean, noise, t = batch
        noisy = (1 - t[:, None]) * clean + t[:, None] * noise
        return functional.mse_loss(model(noisy, t), noise - clean)

    model = Dit()
    batch = (torch.randn(8, 6, 8), torch.randn(8, 6, 8), torch.rand(8, 1))
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def diffusion_transformer() -> Step:
    return _dit(zero_output=True)


def diffusion_transformer_with_output() -> Step:
    return _dit(zero_output=False)


def diffusion_unet_with_zero_output() -> Step:
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = mlp(1, 16, 16, activation=nn.SiLU)
            self.down = nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU()
            )
            self.middle = nn.Sequential(nn.Conv2d(16, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.SiLU())
            self.up = nn.ConvTranspose2d(16, 16, 2, 2)
            self.out = nn.Sequential(
                nn.GroupNorm(4, 32), nn.SiLU(), _zero(nn.Conv2d(32, 3, 3, padding=1))
            )

        def forward(self, x, t):
            down = self.down(x)
            middle = self.middle(down) + self.time(t)[:, :, None, None]
            return self.out(torch.cat([down, self.up(middle)], dim=1))

    def loss_fn(model, batch):
        x, noise, t = batch
        keep = (t * torch.pi / 2).cos()[:, :, None, None]
        noisy = keep * x + (1 - keep**2).sqrt() * noise
        return functional.mse_loss(model(noisy, t), noise)

    model = Denoiser()
    batch = (torch.randn(8, 3, 8, 8), torch.randn(8, 3, 8, 8), 0.9 * torch.rand(8, 1) + 0.05)
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=adam(model))


def post_norm_12_layers() -> Step:
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
            self.head = nn.Linear(32, 4)

        def forward(self, x):
            return self.head(self.encoder(x).mean(1))

    return classification(Encoder(), 6, 32)


def vision_transformer_with_zero_tokens() -> Step:
    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, 32, 4, 4)
            self.token = nn.Parameter(torch.zeros(1, 1, 32))
            self.position = nn.Parameter(torch.zeros(1, 17, 32))
            layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.norm = nn.LayerNorm(32)
            self.head = nn.Linear(32, 4)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.position
            return self.head(self.norm(self.encoder(x))[:, 0])

    return classification(Vit(), 3, 16, 16)


def zero_initialised_head() -> Step:
    return classification(nn.Sequential(mlp(16, 32, 32), nn.ReLU(), _zero(nn.Linear(32, 4))), 16)


def weight_and_spectral_norm() -> Step:
    net = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(16, 32)),
        nn.LeakyReLU(0.2),
        nn.utils.parametrizations.spectral_norm(nn.Linear(32, 32)),
        nn.LeakyReLU(0.2),
        nn.Linear(32, 4),
    )
    return classification(net, 16)


def he_initialised_10_layers() -> Step:
    net = mlp(16, *[128] * 10, 4)
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return classification(net, 16, batch=64)


def selu_network() -> Step:
    net = mlp(16, *[64] * 8, 4, activation=nn.SELU)
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            nn.init.zeros_(layer.bias)
    return classification(net, 16)


def siren() -> Step:
    class Sine(nn.Module):
        def __init__(self, inputs: int, outputs: int, *, first: bool = False):
            super().__init__()
            self.linear = nn.Linear(inputs, outputs)
            bound = 1 / inputs if first else (6 / inputs) ** 0.5 / 30
            nn.init.uniform_(self.linear.weight, -bound, bound)

        def forward(self, x):
            return torch.sin(30 * self.linear(x))

    net = nn.Sequential(Sine(2, 64, first=True), Sine(64, 64), Sine(64, 64), nn.Linear(64, 1))
    x = torch.rand(128, 2) * 2 - 1
    goal = (3 * x).sin().prod(1, keepdim=True)
    return Step(model=net, batch=(x, goal), loss_fn=functional.mse_loss, optimizer=adam(net, 1e-4))


INITIALISATION = lookalikes(
    zero_initialised_branches,
    rezero,
    layer_scale,
    deep_residual_mlp,
    pre_norm_100_blocks,
    fixup,
    resnet,
    zero_gamma_resnet,
    diffusion_transformer,
    diffusion_transformer_with_output,
    diffusion_unet_with_zero_output,
    post_norm_12_layers,
    vision_transformer_with_zero_tokens,
    zero_initialised_head,
    weight_and_spectral_norm,
    he_initialised_10_layers,
    selu_network,
    siren,
)
