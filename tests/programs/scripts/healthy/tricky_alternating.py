import torch
import torch.nn as nn
import torch.nn.functional as F


class Multi(nn.Module):
    def __init__(self, tasks=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(32, 2) for _ in range(tasks))
        self.log_vars = nn.Parameter(torch.zeros(tasks))

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


torch.manual_seed(8)
net = Multi()
trunk_opt = torch.optim.Adam(net.trunk.parameters(), lr=2e-3)
head_opt = torch.optim.Adam([*net.heads.parameters(), net.log_vars], lr=4e-3)
rules = torch.randn(3, 10, 2)
for step in range(180):
    task = [0, 0, 1, 0, 1, 2][step % 6]
    x = torch.randn(32, 10)
    y = torch.tanh(x @ rules[task])
    error = F.mse_loss(net(x, task), y)
    loss = error * torch.exp(-net.log_vars[task]) + net.log_vars[task]
    optimizer = trunk_opt if step % 3 == 0 else head_opt
    net.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, error.item())
