import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class Cell(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.state = weight_norm(nn.Linear(dim, dim, bias=False))
        self.enter = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        with torch.no_grad():
            self.state.parametrizations.weight.original0.fill_(0.4)

    def forward(self, z, x):
        return torch.tanh(self.norm(self.state(z) + self.enter(x)))


class Equilibrium(nn.Module):
    def __init__(self, cell, tolerance=1e-3, limit=30):
        super().__init__()
        self.cell, self.tolerance, self.limit = cell, tolerance, limit

    def forward(self, x):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(self.limit):
                new = self.cell(z, x)
                if (new - z).norm() < self.tolerance * new.norm():
                    break
                z = new
        for _ in range(2):
            z = self.cell(z, x)
        return z


class Model(nn.Module):
    def __init__(self, inputs=10, dim=32, classes=3):
        super().__init__()
        self.enter = nn.Linear(inputs, dim)
        self.equilibrium = Equilibrium(Cell(dim))
        self.leave = nn.Linear(dim, classes)

    def forward(self, x):
        return self.leave(self.equilibrium(self.enter(x)))


def main():
    torch.manual_seed(7)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(100):
        x = torch.randn(64, 10)
        y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"{step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
