import torch
from torch import nn


def descend(net, rate):
    with torch.no_grad():
        for p in net.parameters():
            p.sub_(rate * p.grad)
    net.zero_grad()


torch.manual_seed(53)
net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
for step in range(100):
    x = torch.rand(64, 6) * 2 - 1
    loss = (net(x) - (x[:, :1] * x[:, 1:2] + x[:, 2:3])).pow(2).mean()
    loss.backward()
    descend(net, 0.1)
    if step % 20 == 0:
        print(step, loss.item())
