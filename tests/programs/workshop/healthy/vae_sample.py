import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence


class GaussianEncoder(nn.Module):
    def __init__(self, x_dim, z_dim, hidden=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(x_dim, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU())
        self.loc = nn.Linear(hidden, z_dim)
        self.scale = nn.Sequential(nn.Linear(hidden, z_dim), nn.Softplus())

    def forward(self, x):
        h = self.body(x)
        return Independent(Normal(self.loc(h), self.scale(h) + 1e-4), 1)


class VAE(nn.Module):
    def __init__(self, x_dim=24, z_dim=3):
        super().__init__()
        self.encoder = GaussianEncoder(x_dim, z_dim)
        self.decoder = nn.Sequential(nn.Linear(z_dim, 48), nn.ELU(), nn.Linear(48, x_dim))
        self.register_buffer("zeros", torch.zeros(z_dim))

    def elbo(self, x):
        q = self.encoder(x)
        z = q.rsample()
        prior = Independent(Normal(self.zeros, torch.ones_like(self.zeros)), 1)
        log_px = Independent(Normal(self.decoder(z), 0.3), 1).log_prob(x)
        return (log_px - kl_divergence(q, prior)).mean()


def main():
    torch.manual_seed(0)
    mixing = torch.randn(3, 24)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(120):
        x = torch.tanh(torch.randn(64, 3) @ mixing)
        loss = -model.elbo(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(step, round(loss.item(), 2))


main()
