"""Distils a wide residual classifier of sensor windows into a narrow one."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2, bias=False),
            nn.BatchNorm1d(width),
        )

    def forward(self, x):
        return F.relu(x + self.body(x))


def classifier(width, depth, classes=9):
    return nn.Sequential(
        nn.Conv1d(6, width, 7, padding=3),
        *[Block(width) for _ in range(depth)],
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )


class Distillation(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = classifier(64, 8).requires_grad_(False)
        self.student = classifier(16, 4)

    def forward(self, window):
        with torch.no_grad():
            teacher = self.teacher(window)
        return self.student(window), teacher


def build_model():
    torch.manual_seed(89)
    return Distillation()


def build_batch():
    torch.manual_seed(90)
    return torch.randn(16, 6, 64), torch.randint(0, 9, (16,))


def loss_fn(output, batch):
    student, teacher = output
    temperature = 4.0
    source = F.softmax(student / temperature, dim=1)
    target = F.softmax(3 * teacher / temperature, dim=1)
    soft = F.kl_div(source, target, reduction="batchmean") * temperature**2
    return 0.7 * soft + 0.3 * F.cross_entropy(student, batch[1])
