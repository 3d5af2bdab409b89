"""Physics-informed network for u'(x) = f(x) with u(0) = 1."""
import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        layers = [nn.Linear(1, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


class Equation:
    def __init__(self, rhs, at, value):
        self.rhs, self.at, self.value = rhs, at, value

    def derivative(self, u, x):
        (du,) = torch.autograd.grad(u, x, grad_outputs=torch.ones_like(u), create_graph=True)
        return du

    def residual(self, net, x):
        x = x.requires_grad_(True)
        u = net(x)
        return self.derivative(u, x) - self.rhs(x)

    def boundary(self, net):
        return net(self.at) - self.value


def losses(net, equation, points):
    inside = equation.residual(net, points).pow(2).mean()
    edge = equation.boundary(net).pow(2).mean()
    return inside, edge


def main():
    torch.manual_seed(120)
    net = Field()
    equation = Equation(lambda x: torch.cos(2 * x) + 0.5 * x, torch.zeros(1, 1), 1.0)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    weights = {"inside": 1.0, "edge": 10.0}
    for it in range(40):
        points = 4 * torch.rand(96, 1) - 2
        inside, edge = losses(net, equation, points)
        loss = weights["inside"] * inside + weights["edge"] * edge
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 10 == 0:
            print(f"{it:3d} inside {inside.item():.4f} edge {edge.item():.4f}")


if __name__ == "__main__":
    main()
