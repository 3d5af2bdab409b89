import copy
import torch
import torch.nn as nn
import torch.nn.functional as F


class EWC:
    def __init__(self, model, x, y, strength=50.0):
        self.strength = strength
        self.old = {n: p.detach().clone() for n, p in model.named_parameters()}
        self.fisher = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
        probe = copy.deepcopy(model).eval()
        for xi, yi in zip(x, y):
            probe.zero_grad()
            F.cross_entropy(probe(xi[None]), yi[None]).backward()
            for n, p in probe.named_parameters():
                self.fisher[n] += p.grad.pow(2) / len(x)

    def penalty(self, model):
        return 0.5 * self.strength * sum(
            (self.fisher[n] * (p - self.old[n]).pow(2)).sum() for n, p in model.named_parameters()
        )


def task(seed, n=256):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g)
    return x, (x @ torch.randn(8, 3, generator=g)).argmax(1)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 3))
ewc = None
for t in range(2):
    x, y = task(t)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = F.cross_entropy(model(x), y)
        if ewc is not None:
            loss = loss + ewc.penalty(model)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("task", t, loss.item())
    ewc = EWC(model, x[:64], y[:64])
