import torch
import torch.nn as nn


class G(nn.Module):
    def __init__(self, z=8):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(z, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 6))

    def forward(self, z):
        return self.main(z)


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Linear(6, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))

    def forward(self, x):
        return self.main(x).squeeze(1)


def toggle(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


def real_batch(n):
    c = torch.randint(0, 3, (n,))
    return torch.eye(6)[c * 2] * 2 + 0.1 * torch.randn(n, 6)


def main():
    torch.manual_seed(0)
    g, d = G(), D()
    opt_g = torch.optim.Adam(g.parameters(), 1e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(d.parameters(), 1e-3, betas=(0.5, 0.9))
    bce = nn.BCEWithLogitsLoss()
    ones, zeros = torch.full((64,), 0.9), torch.zeros(64)
    for it in range(120):
        z = torch.randn(64, 8)
        fake = g(z)
        loss_d = bce(d(real_batch(64)), ones) + bce(d(fake.detach()), zeros)
        if loss_d.requires_grad:
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()

        toggle(d, False)
        loss_g = bce(d(fake), ones)
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if it % 30 == 0:
            print(it, round(loss_d.item(), 3), round(loss_g.item(), 3))


main()
