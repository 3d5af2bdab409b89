import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call


class Task(nn.Module):
    def __init__(self, dim=8, classes=3):
        super().__init__()
        self.feature = nn.Linear(dim, 16)
        self.classifier = nn.Linear(16, classes)

    def forward(self, x):
        return self.classifier(torch.tanh(self.feature(x)))


class Regulariser(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 1e-2))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, params):
        flat = torch.cat([p.flatten() for p in params])
        return (F.softplus(self.weight) * flat.abs()).sum() * 1e-2 + self.bias * flat.pow(2).mean()


def domain(index, n=48):
    generator = torch.Generator().manual_seed(index)
    shift = torch.randn(8, generator=generator)
    rule = torch.linspace(-1, 1, 24).view(8, 3)
    x = torch.randn(n, 8)
    return x + 0.3 * shift, (x @ rule).argmax(1)


class MetaLearner:
    def __init__(self, inner_lr=0.2):
        self.task = Task()
        size = sum(p.numel() for p in self.task.parameters())
        self.regulariser = Regulariser(size)
        self.task_optimizer = torch.optim.SGD(self.task.parameters(), lr=0.05)
        self.meta_optimizer = torch.optim.Adam(self.regulariser.parameters(), lr=1e-2)
        self.inner_lr = inner_lr

    def inner(self, params, x, y):
        loss = F.cross_entropy(functional_call(self.task, params, (x,)), y) + self.regulariser(list(params.values()))
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        return {k: p - self.inner_lr * g for (k, p), g in zip(params.items(), grads)}

    def step(self, train, test):
        x, y = domain(train)
        loss = F.cross_entropy(self.task(x), y)
        self.task_optimizer.zero_grad()
        loss.backward()
        self.task_optimizer.step()

        fast = dict(self.task.named_parameters())
        for _ in range(2):
            fast = self.inner(fast, *domain(train))
        x, y = domain(test)
        outer = F.cross_entropy(functional_call(self.task, fast, (x,)), y)
        self.meta_optimizer.zero_grad()
        outer.backward()
        self.meta_optimizer.step()
        return loss.item(), outer.item()


if __name__ == "__main__":
    torch.manual_seed(1)
    learner = MetaLearner()
    for it in range(80):
        a, b = torch.randperm(5)[:2].tolist()
        losses = learner.step(a, b)
        if it % 20 == 0:
            print(it, losses)
