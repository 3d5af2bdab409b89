import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

torch.manual_seed(2)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))

    def forward(self, x):
        return self.layers(x)


class Task:
    def __init__(self):
        self.amplitude = 0.5 + 2 * torch.rand(1)
        self.phase = 3.14 * torch.rand(1)

    def sample(self, n):
        x = 10 * torch.rand(n, 1) - 5
        return x, self.amplitude * torch.sin(x + self.phase)


def adapt(model, params, x, y, lr):
    loss = F.mse_loss(functional_call(model, params, x), y)
    grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
    return {name: p - lr * g for (name, p), g in zip(params.items(), grads)}


def meta_step(model, optimizer, tasks, inner_lr=0.02):
    outer = 0.0
    for task in tasks:
        params = dict(model.named_parameters())
        fast = adapt(model, params, *task.sample(10), inner_lr)
        x, y = task.sample(10)
        outer = outer + F.mse_loss(functional_call(model, fast, x), y)
    loss = outer / len(tasks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    model = Regressor()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(40):
        loss = meta_step(model, optimizer, [Task() for _ in range(4)])
        if step % 10 == 0:
            print(step, loss)
