"""Models of data: adversarial steps, autoencoders, flows."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.lookalikes.case import Step, adam, lookalikes, mlp


class Gan(nn.Module):
    """A generator and a discriminator of images."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
            nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2, True),
            nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2, True),
            nn.Conv2d(32, 1, 4), nn.Flatten(),
        )  # fmt: skip
        for parameter in self.parameters():
            if parameter.ndim == 4:
                nn.init.normal_(parameter, std=0.02)


def _ones(scores: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))


def _zeros(scores: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))


def _generator_loss(model: Gan, noise: Tensor) -> Tensor:
    return _ones(model.discriminator(model.generator(noise)))


def _adversarial(model: Gan, part: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(part.parameters(), lr=2e-4, betas=(0.5, 0.999))


def generator_step() -> Step:
    model = Gan()
    return Step(
        model=model,
        batch=torch.randn(8, 16, 1, 1),
        loss_fn=_generator_loss,
        optimizer=_adversarial(model, model.generator),
    )


def generator_step_with_the_discriminator_frozen() -> Step:
    model = Gan()
    model.discriminator.requires_grad_(False)
    return Step(
        model=model,
        batch=torch.randn(8, 16, 1, 1),
        loss_fn=_generator_loss,
        optimizer=_adversarial(model, model.generator),
    )


def discriminator_step() -> Step:
    def loss_fn(model, batch):
        real, noise = batch
        fake = model.generator(noise).detach()
        return _ones(model.discriminator(real)) + _zeros(model.discriminator(fake))

    model = Gan()
    return Step(
        model=model,
        batch=(torch.rand(8, 1, 16, 16) * 2 - 1, torch.randn(8, 16, 1, 1)),
        loss_fn=loss_fn,
        optimizer=_adversarial(model, model.discriminator),
    )


def discriminator_step_under_no_grad() -> Step:
    def loss_fn(model, batch):
        real, noise = batch
        with torch.no_grad():
            fake = model.generator(noise)
        return _ones(model.discriminator(real)) + _zeros(model.discriminator(fake))

    model = Gan()
    return Step(
        model=model,
        batch=(torch.rand(8, 1, 16, 16) * 2 - 1, torch.randn(8, 16, 1, 1)),
        loss_fn=loss_fn,
    )


def wasserstein_critic_with_penalty() -> Step:
    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.generator = mlp(4, 32, 8)
            self.critic = mlp(8, 64, 64, 1, activation=lambda: nn.LeakyReLU(0.2))

    def loss_fn(model, batch):
        real, noise = batch
        with torch.no_grad():
            fake = model.generator(noise)
        mix = torch.rand(len(real), 1)
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        (slope,) = torch.autograd.grad(model.critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(2, dim=1) - 1).square().mean()
        return model.critic(fake).mean() - model.critic(real).mean() + 10 * penalty

    model = Critic()
    optimizer = torch.optim.Adam(model.critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    batch = (torch.randn(32, 8), torch.randn(32, 4))
    return Step(model=model, batch=batch, loss_fn=loss_fn, optimizer=optimizer)


def variational_autoencoder() -> Step:
    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = mlp(64, 32, 32), mlp(4, 32, 64)
            self.mean, self.log_variance = nn.Linear(32, 4), nn.Linear(32, 4)

        def forward(self, x):
            h = self.encoder(x).relu()
            mean, log_variance = self.mean(h), self.log_variance(h)
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            return torch.sigmoid(self.decoder(z)), mean, log_variance

    def loss_fn(output, x):
        image, mean, log_variance = output
        likelihood = functional.binary_cross_entropy(image, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return likelihood + divergence

    model, x = Vae(), torch.rand(16, 64)
    return Step(model=model, batch=(x, x), loss_fn=loss_fn, optimizer=adam(model))


def coupling_flow() -> Step:
    class Coupling(nn.Module):
        def __init__(self, flip: bool):
            super().__init__()
            self.flip = flip
            self.net = mlp(4, 32, 8, activation=nn.Tanh)
            nn.init.zeros_(self.net[-1].weight)
            nn.init.zeros_(self.net[-1].bias)

        def forward(self, x):
            a, b = x.chunk(2, dim=1)
            a, b = (b, a) if self.flip else (a, b)
            scale, shift = self.net(a).chunk(2, dim=1)
            scale = scale.tanh()
            b = b * scale.exp() + shift
            return torch.cat([b, a] if self.flip else [a, b], dim=1), scale.sum(1)

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Coupling(bool(i % 2)) for i in range(6))

        def forward(self, x):
            total = 0.0
            for layer in self.layers:
                x, log_det = layer(x)
                total = total + log_det
            return torch.distributions.Normal(0, 1).log_prob(x).sum(1) + total

    model = Flow()
    return Step(
        model=model,
        batch=torch.randn(64, 8) * 2 + 1,
        loss_fn=lambda model, x: -model(x).mean(),
        optimizer=adam(model),
    )


def mixture_density() -> Step:
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(1, 32, 15, activation=nn.Tanh)

        def forward(self, x):
            logits, mean, log_scale = self.body(x).chunk(3, dim=-1)
            return torch.distributions.MixtureSameFamily(
                torch.distributions.Categorical(logits=logits),
                torch.distributions.Normal(mean, log_scale.exp()),
            )

    model, x = Mixture(), torch.rand(64, 1)
    y = torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(64)
    return Step(
        model=model,
        batch=(x, y),
        loss_fn=lambda model, batch: -model(batch[0]).log_prob(batch[1]).mean(),
        optimizer=adam(model),
    )


def masked_autoencoder() -> Step:
    class Mae(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.token = nn.Linear(12, 32), nn.Parameter(torch.zeros(1, 1, 32))
            layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.decoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.position = nn.Parameter(0.02 * torch.randn(1, 16, 32), requires_grad=False)
            self.out = nn.Linear(32, 12)

        def forward(self, patches):
            order = torch.rand(len(patches), 16).argsort(dim=1)
            keep = order[:, :4, None].expand(-1, -1, 32)
            seen = self.encoder((self.embed(patches) + self.position).gather(1, keep))
            whole = self.token.expand(len(patches), 16, 32).scatter(1, keep, seen)
            mask = torch.ones(len(patches), 16).scatter(1, order[:, :4], 0.0)
            error = (self.out(self.decoder(whole + self.position)) - patches).square().mean(-1)
            return (error * mask).sum() / mask.sum()

    model = Mae()
    return Step(
        model=model,
        batch=torch.randn(8, 16, 12),
        loss_fn=lambda model, patches: model(patches),
        optimizer=adam(model),
    )


GENERATIVE = lookalikes(
    generator_step,
    generator_step_with_the_discriminator_frozen,
    discriminator_step,
    discriminator_step_under_no_grad,
    wasserstein_critic_with_penalty,
    variational_autoencoder,
    coupling_flow,
    mixture_density,
    masked_autoencoder,
)
