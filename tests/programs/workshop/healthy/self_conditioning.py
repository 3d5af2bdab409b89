import random
import torch
import torch.nn as nn
import torch.nn.functional as F


class AnalogBits(nn.Module):
    def __init__(self, bits=8, d=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * bits + 1, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU(), nn.Linear(d, bits))

    def forward(self, x, prev, t):
        return self.net(torch.cat([x, prev, t], 1))


def train_step(net, x0):
    t = torch.rand(len(x0), 1)
    xt = torch.cos(t * 1.57) * x0 + torch.sin(t * 1.57) * torch.randn_like(x0)
    prev = torch.zeros_like(x0)
    if random.random() < 0.5:
        with torch.no_grad():
            prev = net(xt, prev, t)
    return F.mse_loss(net(xt, prev.detach(), t), x0)


random.seed(1)
torch.manual_seed(1)
net = AnalogBits()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
codes = torch.randint(0, 2, (10, 8)).float() * 2 - 1
for i in range(100):
    loss = train_step(net, codes[torch.randint(0, 10, (64,))])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
