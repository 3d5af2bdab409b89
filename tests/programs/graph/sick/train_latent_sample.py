"""Variational autoencoder written with distributions."""

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence


class Encoder(nn.Module):
    def __init__(self, inputs=20, latent=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 32), nn.Tanh())
        self.loc, self.scale = nn.Linear(32, latent), nn.Linear(32, latent)

    def forward(self, x):
        hidden = self.body(x)
        return Normal(self.loc(hidden), nn.functional.softplus(self.scale(hidden)) + 1e-3)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 20))

    def forward(self, x):
        posterior = self.encoder(x)
        code = posterior.sample()
        return self.decoder(code), posterior


def main():
    torch.manual_seed(0)
    basis = torch.randn(3, 20)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    prior = Normal(torch.zeros(3), torch.ones(3))
    for step in range(40):
        x = torch.randn(64, 3) @ basis
        output, posterior = model(x)
        error = (output - x).pow(2).sum(1).mean()
        loss = error + kl_divergence(posterior, prior).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(error.item(), 3))


if __name__ == "__main__":
    main()
