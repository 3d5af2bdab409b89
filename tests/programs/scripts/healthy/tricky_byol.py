import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(mlp(16, 48, 32), nn.ReLU(), mlp(32, 32, 16))
        self.target = copy.deepcopy(self.online)
        self.target.requires_grad_(False)
        self.predictor = mlp(16, 32, 16)

    def regress(self, a, b):
        p = F.normalize(self.predictor(self.online(a)), dim=1)
        with torch.no_grad():
            z = F.normalize(self.target(b), dim=1)
        return 2 - 2 * (p * z).sum(1).mean()

    def forward(self, a, b):
        return self.regress(a, b) + self.regress(b, a)

    @torch.no_grad()
    def momentum(self, tau):
        for t, o in zip(self.target.parameters(), self.online.parameters()):
            t.lerp_(o, 1 - tau)


torch.manual_seed(2)
model = BYOL()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9, weight_decay=1e-4)
steps, warmup = 150, 15
for step in range(steps):
    lr = 0.05 * step / warmup if step < warmup else 0.025 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))
    for group in optimizer.param_groups:
        group["lr"] = lr
    x = torch.randn(64, 4) @ torch.linspace(-1, 1, 64).view(4, 16)
    loss = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.momentum(1 - 0.01 * (math.cos(math.pi * step / steps) + 1) / 2)
    if step % 30 == 0:
        print(step, loss.item())
