"""Meta-learn an initialization for sine regression."""

import copy

import torch
from torch import nn
from torch.func import functional_call


class Regressor(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def forward(self, x):
        return self.net(x)


def sample_task(n=10):
    amplitude, phase = 1 + 2 * torch.rand(1), 3.14 * torch.rand(1)
    x = torch.rand(2 * n, 1) * 10 - 5
    y = amplitude * torch.sin(x + phase)
    return x[:n], y[:n], x[n:], y[n:]


class MAML:
    def __init__(self, model, inner_lr=0.05, outer_lr=1e-3):
        self.model = model
        self.inner_lr = inner_lr
        self.criterion = nn.MSELoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=outer_lr)

    def adapt(self, x, y):
        adapted = copy.deepcopy(self.model)
        loss = self.criterion(adapted(x), y)
        grads = torch.autograd.grad(loss, list(adapted.parameters()), create_graph=True)
        for param, grad in zip(adapted.parameters(), grads):
            param.data -= self.inner_lr * grad
        return dict(adapted.named_parameters())

    def meta_step(self, tasks):
        meta_loss = 0.0
        for x_s, y_s, x_q, y_q in tasks:
            fast = self.adapt(x_s, y_s)
            meta_loss = meta_loss + self.criterion(functional_call(self.model, fast, (x_q,)), y_q)
        meta_loss = meta_loss / len(tasks)
        self.optimizer.zero_grad()
        meta_loss.backward()
        self.optimizer.step()
        return meta_loss.item()


def main():
    torch.manual_seed(21)
    maml = MAML(Regressor())
    for it in range(25):
        loss = maml.meta_step([sample_task() for _ in range(4)])
        if it % 8 == 0:
            print(f"iteration {it}: query loss {loss:.4f}")


if __name__ == "__main__":
    main()
