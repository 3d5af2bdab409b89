import torch
import torch.nn as nn
from torch.func import functional_call


class HyperNet(nn.Module):
    def __init__(self, target, z=4):
        super().__init__()
        self.shapes = {n: p.shape for n, p in target.named_parameters()}
        total = sum(s.numel() for s in self.shapes.values())
        self.net = nn.Sequential(nn.Linear(z, 32), nn.ReLU(), nn.Linear(32, total))
        nn.init.normal_(self.net[-1].weight, std=0.02)

    def forward(self, z):
        flat = self.net(z)
        chunks = flat.split([s.numel() for s in self.shapes.values()])
        return {n: c.view(s) for (n, s), c in zip(self.shapes.items(), chunks)}


torch.manual_seed(0)
main_net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
hyper = HyperNet(main_net)
tasks = nn.Parameter(torch.randn(5, 4))
opt = torch.optim.Adam([*hyper.parameters(), tasks], lr=5e-3)
for step in range(100):
    k = step % 5
    x = torch.rand(64, 2) * 2 - 1
    y = torch.sin((k + 1) * x[:, :1]) + x[:, 1:]
    loss = (functional_call(main_net, hyper(tasks[k]), (x,)) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
