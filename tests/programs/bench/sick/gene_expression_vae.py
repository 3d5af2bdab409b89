"""Variational autoencoder of gene expression, in the style of scVI."""

import torch
from torch import nn
from torch.distributions import Normal, Poisson, kl_divergence

GENES, LATENT = 40, 5


class Encoder(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(GENES, hidden), nn.LayerNorm(hidden), nn.ReLU())
        self.loc = nn.Linear(hidden, LATENT)
        self.log_scale = nn.Linear(hidden, LATENT)

    def forward(self, counts):
        h = self.body(torch.log1p(counts))
        return Normal(self.loc(h), self.log_scale(h).clamp(-5, 3).exp())


class Decoder(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LATENT, hidden), nn.ReLU(), nn.Linear(hidden, GENES))

    def forward(self, z, library):
        return Poisson(library * self.net(z).softmax(dim=-1) + 1e-6)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def elbo(self, counts, beta):
        q = self.encoder(counts)
        z = q.sample()
        log_likelihood = self.decoder(z, counts.sum(1, keepdim=True)).log_prob(counts).sum(1)
        kl = kl_divergence(q, Normal(torch.zeros(()), torch.ones(()))).sum(1)
        return (log_likelihood - beta * kl).mean()


def cells(n=192):
    programs = torch.rand(4, GENES) ** 3
    usage = torch.softmax(3 * torch.randn(n, 4), dim=1)
    return torch.poisson(20 * usage @ programs)


def main():
    torch.manual_seed(16)
    data = cells()
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        beta = min(1.0, (epoch + 1) / 4)
        total = 0.0
        for batch in data[torch.randperm(len(data))].split(48):
            loss = -model.elbo(batch, beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} -elbo {total / 4:.3f}")


if __name__ == "__main__":
    main()
