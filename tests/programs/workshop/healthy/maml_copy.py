import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call


def sine_task():
    amp, phase = torch.rand(1) * 4 + 1, torch.rand(1) * 3.14

    def draw(n=10):
        x = torch.rand(n, 1) * 10 - 5
        return x, amp * torch.sin(x + phase)

    return draw


class MAML:
    def __init__(self, net, inner_lr=0.02, meta_lr=2e-3, inner_steps=2):
        self.net = net
        self.inner_lr = inner_lr
        self.inner_steps = inner_steps
        self.meta_opt = torch.optim.Adam(net.parameters(), lr=meta_lr)

    def adapt(self, x, y):
        weights = dict(self.net.named_parameters())
        for _ in range(self.inner_steps):
            loss = F.mse_loss(functional_call(self.net, weights, (x,)), y)
            grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {k: w - self.inner_lr * g for (k, w), g in zip(weights.items(), grads)}
        return lambda inp: functional_call(self.net, weights, (inp,))

    def meta_step(self, tasks):
        self.meta_opt.zero_grad()
        total = 0.0
        for draw in tasks:
            learner = self.adapt(*draw())
            x, y = draw()
            loss = F.mse_loss(learner(x), y) / len(tasks)
            loss.backward()
            total += loss.item()
        self.meta_opt.step()
        return total


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
maml = MAML(net)
start = net[0].weight.detach().clone()
for it in range(50):
    loss = maml.meta_step([sine_task() for _ in range(4)])
    if it % 10 == 0:
        print(it, loss)
print("moved", (net[0].weight - start).norm().item())
