import copy

import torch
import torch.nn.functional as F
from torch import nn


def mlp(a, hidden, b):
    return nn.Sequential(nn.Linear(a, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, b))


class BYOL(nn.Module):
    def __init__(self, inputs=24, width=32, momentum=0.98):
        super().__init__()
        self.online = nn.Sequential(mlp(inputs, 64, width), mlp(width, 64, width))
        self.predictor = mlp(width, 64, width)
        self.target = copy.deepcopy(self.online)
        self.momentum = momentum

    def regression(self, p, z):
        return 2 - 2 * F.cosine_similarity(p, z, dim=-1).mean()

    def forward(self, a, b):
        pa, pb = self.predictor(self.online(a)), self.predictor(self.online(b))
        za, zb = self.target(a).detach(), self.target(b).detach()
        return (self.regression(pa, zb) + self.regression(pb, za)) / 2

    @torch.no_grad()
    def update_target(self):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - self.momentum)


def augment(x):
    return x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)


def main():
    torch.manual_seed(14)
    model = BYOL()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    basis = torch.randn(6, 24)
    for step in range(60):
        x = torch.randn(64, 6) @ basis
        loss = model(augment(x), augment(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.update_target()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
