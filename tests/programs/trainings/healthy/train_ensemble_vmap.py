"""Ensemble of regressors evaluated at once with vmap."""
import copy
import itertools

import torch
import torch.nn as nn
from torch.func import functional_call, stack_module_state, vmap


def member():
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


class Ensemble:
    def __init__(self, size, lr):
        self.members = [member() for _ in range(size)]
        self.params, self.buffers = stack_module_state(self.members)
        self.skeleton = copy.deepcopy(self.members[0]).to("meta")
        self.optimizer = torch.optim.Adam(itertools.chain(self.params.values()), lr=lr)

    def __call__(self, x):
        def single(params, buffers, data):
            return functional_call(self.skeleton, (params, buffers), (data,))
        return vmap(single, in_dims=(0, 0, None))(self.params, self.buffers, x)

    def fit_step(self, x, y):
        pred = self(x)
        loss = (pred - y).pow(2).mean(dim=(1, 2)).sum()
        for p in self.params.values():
            p.grad = None
        loss.backward()
        self.optimizer.step()
        return loss.item() / len(self.members), pred.std(dim=0).mean().item()


def surface(n, g):
    x = 2 * torch.rand(n, 2, generator=g) - 1
    return x, (torch.sin(3 * x[:, :1]) * torch.cos(2 * x[:, 1:]))


if __name__ == "__main__":
    torch.manual_seed(411)
    g = torch.Generator().manual_seed(412)
    ensemble = Ensemble(size=4, lr=5e-3)
    for step in range(120):
        loss, spread = ensemble.fit_step(*surface(128, g))
        if step % 20 == 0:
            print(f"{step} mse {loss:.4f} spread {spread:.4f}")
