import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 12, 3, padding=1)
        self.bn = nn.BatchNorm2d(12)
        self.fc = nn.Linear(12 * 16, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return self.fc(x.flatten(1))


def pgd(model, x, y, eps, steps):
    delta = torch.empty_like(x).uniform_(-eps, eps)
    for _ in range(steps):
        delta.requires_grad_(True)
        loss = F.cross_entropy(model(x + delta), y)
        grad, = torch.autograd.grad(loss, delta)
        delta = (delta.detach() + eps / 2 * grad.sign()).clamp(-eps, eps)
    return (x + delta).detach()


def batch(n):
    y = torch.randint(0, 4, (n,))
    x = 0.3 * torch.randn(n, 1, 8, 8)
    for image, label in zip(x, y):
        image[0, 2 * int(label) : 2 * int(label) + 2] += 1
    return x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--eps", type=float, default=0.1)
    args = parser.parse_args()
    torch.manual_seed(15)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for step in range(50):
        x, y = batch(32)
        model.eval()
        adversarial = pgd(model, x, y, args.eps, 3)
        model.train()
        loss = F.cross_entropy(model(adversarial), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
