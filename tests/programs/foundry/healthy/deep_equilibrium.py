"""Deep equilibrium layer: the fixed point is solved without a graph, its gradient by a second solve."""
import torch
import torch.nn.functional as F
from torch import autograd, nn


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        nn.init.orthogonal_(self.w.weight, gain=0.4)

    def forward(self, z, x):
        return 0.5 * torch.tanh(self.norm(self.w(z) + x))


class Equilibrium(nn.Module):
    def __init__(self, cell, rounds=25):
        super().__init__()
        self.cell, self.rounds = cell, rounds

    def solve(self, f, z):
        for _ in range(self.rounds):
            z = f(z)
        return z

    def forward(self, x):
        with torch.no_grad():
            z = self.solve(lambda z: self.cell(z, x), torch.zeros_like(x))
        z = self.cell(z, x)
        if torch.is_grad_enabled():
            z0 = z.clone().detach().requires_grad_()
            f0 = self.cell(z0, x)

            def backward_hook(grad):
                return self.solve(lambda y: autograd.grad(f0, z0, y, retain_graph=True)[0] + grad, grad)

            z.register_hook(backward_hook)
        return z


class DEQ(nn.Module):
    def __init__(self, n_in=10, width=24, classes=3):
        super().__init__()
        self.inject = nn.Linear(n_in, width)
        self.core = Equilibrium(Cell(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.core(self.inject(x)))


def spirals(n):
    y = torch.randint(0, 3, (n,))
    r = torch.rand(n)
    angle = 4 * r + 2.09 * y
    base = torch.stack([r * angle.cos(), r * angle.sin()], 1)
    return torch.cat([base * k for k in (1, 2, 3, 4)] + [base.pow(2)], 1), y


def main():
    torch.manual_seed(307)
    model = DEQ()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(20):
        x, y = spirals(64)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
