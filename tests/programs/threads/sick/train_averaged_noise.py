import copy

import torch
from torch import nn


def validate(net, average, data):
    kept = net.state_dict()
    net.load_state_dict(average.state_dict())
    net.eval()
    with torch.no_grad():
        x, y = data
        value = nn.functional.mse_loss(net(x), y).item()
    net.train()
    net.load_state_dict(kept)
    return value


def sample(n):
    x = torch.rand(n, 4) * 2 - 1
    return x, torch.sin(3 * x).sum(1, keepdim=True)


torch.manual_seed(14)
net = nn.Sequential(nn.Linear(4, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
average = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
held = sample(256)
for step in range(1, 161):
    x, y = sample(64)
    loss = nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), net.parameters()):
            slow.lerp_(fast, 0.02)
    if step % 20 == 0:
        print(step, loss.item(), validate(net, average, held))
