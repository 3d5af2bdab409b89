import math

import torch
import torch.nn.functional as F
from torch import nn


class ReverseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lambd):
        ctx.lambd = lambd
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.lambd, None


class DANN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
        self.label = nn.Linear(24, 3)
        self.domain = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2))

    def forward(self, x, lambd):
        h = self.features(x)
        return self.label(h), self.domain(ReverseGradient.apply(h, lambd))


def loader(shift, n=12, size=32):
    g = torch.Generator().manual_seed(23)
    for _ in range(n):
        x = torch.randn(size, 10, generator=g)
        y = x[:, :3].argmax(1)
        x[:, 3:6] += shift
        yield x, y


def main():
    torch.manual_seed(24)
    model = DANN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    epochs, per_epoch = 10, 12
    step = 0
    for epoch in range(epochs):
        for (xs, ys), (xt, _) in zip(loader(0.0), loader(2.0)):
            p = step / (epochs * per_epoch)
            lambd = 2.0 / (1.0 + math.exp(-10 * p)) - 1.0
            labels, source = model(xs, lambd)
            _, target = model(xt, lambd)
            domain = torch.cat([source, target])
            truth = torch.cat([torch.zeros(len(xs)), torch.ones(len(xt))]).long()
            domain_loss = F.cross_entropy(domain, truth)
            loss = F.cross_entropy(labels, ys) + domain_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        print(epoch, round(loss.item(), 3), round(domain_loss.item(), 3), round(lambd, 3))


if __name__ == "__main__":
    main()
