import argparse
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Independent, Normal, kl_divergence
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Posterior:
    mean: Tensor
    log_scale: Tensor

    @cached_property
    def distribution(self):
        scale = self.log_scale.clamp(-5, 3).exp()
        return Independent(Normal(self.mean, scale), 1)

    @cached_property
    def latents(self):
        return self.distribution.rsample()

    def divergence(self):
        zeros, ones = torch.zeros_like(self.mean), torch.ones_like(self.mean)
        return kl_divergence(self.distribution, Independent(Normal(zeros, ones), 1))


class Encoder(nn.Module):
    def __init__(self, features, width, latent):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(features, width), nn.ELU(), nn.Linear(width, width), nn.ELU()
        )
        self.mean = nn.Linear(width, latent)
        self.log_scale = nn.Linear(width, latent)

    def forward(self, x):
        hidden = self.trunk(x)
        return Posterior(self.mean(hidden), self.log_scale(hidden))


class Decoder(nn.Module):
    def __init__(self, features, width, latent):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(latent, width), nn.ELU(), nn.Linear(width, features))

    def forward(self, z):
        return Independent(Bernoulli(logits=self.net(z)), 1)


class VAE(nn.Module):
    def __init__(self, features=36, width=48, latent=6):
        super().__init__()
        self.encoder = Encoder(features, width, latent)
        self.decoder = Decoder(features, width, latent)

    def elbo(self, x, beta):
        posterior = self.encoder(x)
        likelihood = self.decoder(posterior.latents).log_prob(x)
        return (likelihood - beta * posterior.divergence()).mean()


class BetaSchedule:
    def __init__(self, steps, ceiling=1.0):
        self.steps = steps
        self.ceiling = ceiling
        self.count = 0

    def __call__(self):
        self.count += 1
        return self.ceiling * min(1.0, self.count / self.steps)


def bars(count, size=6):
    rows = (torch.rand(count, size, 1) < 0.3).float()
    columns = (torch.rand(count, 1, size) < 0.3).float()
    return TensorDataset(torch.maximum(rows, columns).expand(-1, size, size).flatten(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--beta", type=float, default=0.7)
    args = parser.parse_args()
    torch.manual_seed(30)
    model = VAE()
    loader = DataLoader(bars(320), batch_size=32, shuffle=True)
    optimizer = torch.optim.Adamax(model.parameters(), lr=3e-3)
    beta = BetaSchedule(steps=len(loader), ceiling=args.beta)
    for epoch in range(args.epochs):
        for (x,) in loader:
            loss = -model.elbo(x, beta())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
