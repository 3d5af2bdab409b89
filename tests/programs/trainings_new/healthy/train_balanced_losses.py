import torch
from torch import nn

torch.manual_seed(75)
shared = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
heads = nn.ModuleList([nn.Linear(32, 1), nn.Linear(32, 1)])
weights = nn.Parameter(torch.ones(2))
opt = torch.optim.Adam([*shared.parameters(), *heads.parameters()], lr=5e-3)
opt_w = torch.optim.Adam([weights], lr=1e-2)
start = None
for step in range(120):
    x = torch.randn(40, 8)
    goals = [x[:, :1] * x[:, 1:2], 10 * x[:, 2:3]]
    h = shared(x)
    losses = torch.stack([(head(h) - y).pow(2).mean() for head, y in zip(heads, goals)])
    start = losses.detach() if start is None else start
    opt.zero_grad()
    (weights.detach() * losses).sum().backward(retain_graph=True)
    norms = torch.stack([
        torch.autograd.grad(weights[i] * losses[i], shared[0].weight, create_graph=True)[0].norm() for i in range(2)
    ])
    speed = losses.detach() / start
    goal = (norms.mean() * (speed / speed.mean()) ** 0.5).detach()
    opt_w.zero_grad()
    weights.grad = torch.autograd.grad((norms - goal).abs().sum(), weights)[0]
    opt_w.step()
    opt.step()
    with torch.no_grad():
        weights.clamp_(min=0.05)
        weights.mul_(2 / weights.sum())
    if step % 30 == 29:
        print(step, losses.tolist(), weights.tolist())
