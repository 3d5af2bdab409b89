import math
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(48)
weights = nn.ParameterList([
    nn.Parameter(torch.randn(24, 1)), nn.Parameter(torch.zeros(24)),
    nn.Parameter(torch.randn(1, 24) / 5), nn.Parameter(torch.zeros(1)),
])
inner_lr = nn.Parameter(torch.tensor(0.05))
meta = torch.optim.Adam([*weights, inner_lr], lr=5e-3)


def net(x, w):
    return F.linear(torch.tanh(F.linear(x, w[0], w[1])), w[2], w[3])


def adapt(x, y, steps=2):
    fast = [w.detach().clone().requires_grad_() for w in weights]
    for _ in range(steps):
        loss = F.mse_loss(net(x, fast), y)
        grads = torch.autograd.grad(loss, fast, create_graph=True)
        fast = [w - inner_lr * g for w, g in zip(fast, grads)]
    return fast


for it in range(50):
    meta.zero_grad()
    outer = 0.0
    for _ in range(4):
        phase, amplitude = torch.rand(1) * math.pi / 2, 1 + torch.rand(1)
        x = torch.rand(20, 1) * 4 - 2
        y = amplitude * torch.sin(x + phase)
        outer = outer + F.mse_loss(net(x[10:], adapt(x[:10], y[:10])), y[10:]) / 4
    outer.backward()
    meta.step()
    if it % 10 == 9:
        print(it, outer.item())
