import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
centres = torch.randn(6, 24)


def net(inputs, outputs, width=48):
    return nn.Sequential(nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, outputs))


def views(n):
    x = centres[torch.randint(6, (n,))]
    return x + 0.3 * torch.randn_like(x), x + 0.3 * torch.randn_like(x)


online, predictor = net(24, 16), net(16, 16)
target = copy.deepcopy(online)
for p in target.parameters():
    p.requires_grad = False

optimizer = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=2e-3)
for step in range(100):
    a, b = views(48)
    with torch.no_grad():
        ta, tb = target(a), target(b)
    loss = 4 - 2 * F.cosine_similarity(predictor(online(a)), tb).mean()
    loss = loss - 2 * F.cosine_similarity(predictor(online(b)), ta).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), online.parameters()):
            slow.data.mul_(0.98).add_(fast.data, alpha=0.02)
    if step % 25 == 0:
        print(step, round(loss.item(), 4))
