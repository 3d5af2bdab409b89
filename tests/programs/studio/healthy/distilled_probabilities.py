"""Distil a wide network into a narrow one."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def mlp(width, classes=6):
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))


class DistillationLoss(nn.Module):
    def __init__(self, temperature, alpha):
        super().__init__()
        self.temperature, self.alpha = temperature, alpha

    def forward(self, student, teacher, labels):
        t = self.temperature
        soft = F.kl_div(F.log_softmax(student / t, dim=1), F.softmax(teacher / t, dim=1), reduction="batchmean")
        hard = F.cross_entropy(student, labels)
        return self.alpha * t * t * soft + (1 - self.alpha) * hard


class Data:
    def __init__(self):
        self.centres = torch.randn(6, 20)

    def batch(self, n):
        y = torch.randint(0, 6, (n,))
        return self.centres[y] + torch.randn(n, 20), y


def fit_teacher(teacher, data, steps):
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(steps):
        x, y = data.batch(64)
        loss = F.cross_entropy(teacher(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return teacher.eval().requires_grad_(False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--temperature", type=float, default=3.0)
    parser.add_argument("--alpha", type=float, default=0.9)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = Data()
    teacher = fit_teacher(mlp(64), data, 60)
    student = mlp(16)
    criterion = DistillationLoss(args.temperature, args.alpha)
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    for step in range(args.steps):
        x, y = data.batch(64)
        with torch.no_grad():
            targets = teacher(x)
        loss = criterion(student(x), targets, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
