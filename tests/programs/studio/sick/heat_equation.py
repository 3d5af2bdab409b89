"""Physics-informed network for u_t = nu * u_xx on [0, 1]."""

import torch
from torch import nn

SETTINGS = dict(width=32, nu=0.2, lr=2e-3, steps=120, interior=128, boundary=64)


class Field(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x, t):
        return self.net(torch.cat([x, t], dim=1))


def derivative(y, x, order=1):
    for i in range(order):
        y = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True, create_graph=i + 1 < order)[0]
    return y


def residual(model, x, t, nu):
    x.requires_grad_(True)
    t.requires_grad_(True)
    u = model(x, t)
    u_t = derivative(u, t)
    u_xx = derivative(u, x, order=2)
    return u_t - nu * u_xx


def losses(model, cfg):
    x, t = torch.rand(cfg["interior"], 1), torch.rand(cfg["interior"], 1)
    physics = residual(model, x, t, cfg["nu"]).pow(2).mean()
    x0 = torch.rand(cfg["boundary"], 1)
    start = (model(x0, torch.zeros_like(x0)) - torch.sin(3.14159 * x0)).pow(2).mean()
    tb = torch.rand(cfg["boundary"], 1)
    walls = model(torch.zeros_like(tb), tb).pow(2).mean() + model(torch.ones_like(tb), tb).pow(2).mean()
    return physics, start, walls


def main():
    torch.manual_seed(0)
    model = Field(SETTINGS["width"])
    optimizer = torch.optim.Adam(model.parameters(), lr=SETTINGS["lr"])
    for step in range(SETTINGS["steps"]):
        physics, start, walls = losses(model, SETTINGS)
        loss = physics + 10 * start + walls
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"{step} physics {physics.item():.4f} start {start.item():.4f} walls {walls.item():.4f}")


if __name__ == "__main__":
    main()
