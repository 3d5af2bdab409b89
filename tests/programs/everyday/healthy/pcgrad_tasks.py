import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
net = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
heads = nn.ModuleList([nn.Linear(48, 1), nn.Linear(48, 1)])
params = [*net.parameters(), *heads.parameters()]
optimizer = torch.optim.Adam(params, lr=2e-3)
w = torch.randn(10, 2)


def flat(loss):
    grads = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
    return torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten() for p, g in zip(params, grads)])


def project(a, b):
    dot = a @ b
    return a - dot / b.dot(b).clamp(min=1e-12) * b if dot < 0 else a


def write(vector):
    start = 0
    for p in params:
        p.grad = vector[start : start + p.numel()].view_as(p).clone()
        start += p.numel()


for step in range(100):
    x = torch.randn(64, 10)
    y = torch.sin(0.3 * x @ w)
    h = net(x)
    losses = [F.mse_loss(head(h).squeeze(1), y[:, i]) for i, head in enumerate(heads)]
    first, second = (flat(loss) for loss in losses)
    write(project(first, second) + project(second, first))
    optimizer.step()
    if step % 25 == 0:
        print(step, [round(loss.item(), 3) for loss in losses])
