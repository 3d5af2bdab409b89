import torch
import torch.nn as nn
import torch.nn.functional as F


def block(i, o):
    return nn.Sequential(nn.Linear(i, 32), nn.PReLU(), nn.Linear(32, o))


class Level:
    def __init__(self, size, latent):
        self.size, self.latent = size, latent


class LadderVAE(nn.Module):
    def __init__(self, levels):
        super().__init__()
        first = levels[0]
        self.encoder = block(first.size, 2 * first.latent)
        self.decoder = block(first.latent, first.size)
        ups, downs = [], []
        for below, above in zip(levels, levels[1:]):
            ups.append(block(below.latent, 2 * above.latent))
            downs.append(block(above.latent, 2 * below.latent))
        self.ups = nn.ModuleList(ups)
        self.downs = nn.ModuleList(downs)

    @staticmethod
    def draw(mu, logvar):
        return mu + torch.randn_like(mu) * (0.5 * logvar).exp()

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, -1)
        z = [self.draw(mu, logvar)]
        posterior = [(mu, logvar)]
        for up in self.ups:
            mu, logvar = up(z[-1]).chunk(2, -1)
            z.append(self.draw(mu, logvar))
            posterior.append((mu, logvar))
        prior = [down(zi).chunk(2, -1) for down, zi in zip(self.downs, z[1:])]
        top = posterior[-1]
        prior.append((torch.zeros_like(top[0]), torch.zeros_like(top[1])))
        kl = 0.0
        for (m1, l1), (m2, l2) in zip(posterior, prior):
            kl = kl + 0.5 * (l2 - l1 + (l1.exp() + (m1 - m2) ** 2) / l2.exp() - 1).sum(-1)
        return self.decoder(z[0]), kl


def run(epochs=4):
    torch.manual_seed(21)
    basis = torch.randn(3, 16)
    data = torch.tanh(torch.randn(1024, 3) @ basis) + 0.05 * torch.randn(1024, 16)
    model = LadderVAE([Level(16, 8), Level(8, 4), Level(4, 2)])
    optimizer = torch.optim.Adamax(model.parameters(), lr=2e-3)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), 64, shuffle=True)
    for epoch in range(epochs):
        total = 0.0
        for (x,) in loader:
            recon, kl = model(x)
            nelbo = (F.mse_loss(recon, x, reduction="none").sum(-1) * 5 + kl).mean()
            optimizer.zero_grad()
            nelbo.backward()
            optimizer.step()
            total += nelbo.item()
        print(epoch, total / len(loader))


run()
