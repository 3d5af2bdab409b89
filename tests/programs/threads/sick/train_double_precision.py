import copy

import torch
from torch import nn


def prepare(net):
    return copy.deepcopy(net).double()


torch.manual_seed(37)
net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
net = prepare(net)
for step in range(80):
    x = torch.randn(64, 8, dtype=torch.double)
    loss = (net(x) - x.pow(2).mean(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
