import copy
import torch
from torch import nn
import torch.nn.functional as F


def mlp(a, b, c):
    return nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Linear(b, c))


torch.manual_seed(61)
online, predictor = mlp(16, 64, 16), mlp(16, 32, 16)
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.1, momentum=0.9)
mixing = torch.randn(4, 16)
for step in range(90):
    x = torch.randn(96, 4) @ mixing
    a, b = (x + 0.3 * torch.randn_like(x) for _ in range(2))
    loss = 0.0
    for u, v in ((a, b), (b, a)):
        with torch.no_grad():
            goal = target(v)
        loss = loss + (2 - 2 * F.cosine_similarity(predictor(online(u)), goal)).mean() / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for t, o in zip(target.parameters(), online.parameters()):
        t.data.mul_(0.97).add_(o.data, alpha=0.03)
    if step % 30 == 29:
        print(step, loss.item())
