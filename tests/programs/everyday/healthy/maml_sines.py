import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

torch.manual_seed(7)


def task():
    amplitude, phase = 1 + torch.rand(()) * 2, torch.rand(()) * 3

    def sample(n):
        x = torch.rand(n, 1) * 6 - 3
        return x, amplitude * torch.sin(x + phase)

    return sample


model = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
outer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(80):
    outer.zero_grad()
    total = 0.0
    for _ in range(3):
        sample = task()
        fast = dict(model.named_parameters())
        for _ in range(2):
            x, y = sample(10)
            inner = F.mse_loss(functional_call(model, fast, (x,)), y)
            grads = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
            fast = {name: p - 0.02 * g for (name, p), g in zip(fast.items(), grads)}
        x, y = sample(10)
        loss = F.mse_loss(functional_call(model, fast, (x,)), y) / 3
        loss.backward()
        total += loss.item()
    outer.step()
    if step % 20 == 0:
        print(f"{step} {total:.4f}")
