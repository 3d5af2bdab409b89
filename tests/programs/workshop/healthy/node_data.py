import torch
import torch.nn as nn


class Field(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, 32), nn.Softplus(), nn.Linear(32, dim))

    def forward(self, t, z):
        tt = z.new_full((z.size(0), 1), t)
        return self.net(torch.cat([z, tt], dim=1))


class ODENet(nn.Module):
    def __init__(self, d_in=5, dim=8, steps=6):
        super().__init__()
        self.encode = nn.Linear(d_in, dim)
        self.field = Field(dim)
        self.decode = nn.Linear(dim, 2)
        self.steps = steps

    def integrate(self, z):
        dt = 1.0 / self.steps
        for k in range(self.steps):
            z = z + dt * self.field(k * dt, z)
        return z

    def forward(self, x):
        return self.decode(self.integrate(self.encode(x)))


def build_model():
    torch.manual_seed(0)
    return ODENet()


def build_batch():
    torch.manual_seed(1)
    x = torch.randn(32, 5)
    return x, torch.stack([x[:, 0].sin(), x[:, 1] * x[:, 2]], 1)


def loss_fn(output, batch):
    return nn.functional.mse_loss(output, batch[1])
