"""Self-distillation: the student starts as a copy of the teacher and gets a smaller head."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, width=32, classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, width), nn.GELU())
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(2))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Distiller:
    def __init__(self, teacher, temperature=2.0):
        self.student = self._student_of(teacher)
        self.teacher = self._frozen(teacher)
        self.temperature = temperature
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=3e-3)

    @staticmethod
    def _student_of(teacher):
        student = copy.deepcopy(teacher)
        student.head = nn.Linear(teacher.head.in_features, teacher.head.out_features)
        return student

    @staticmethod
    def _frozen(module):
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        return module.eval()

    def train_step(self, x, labels):
        self.student.train()
        with torch.no_grad():
            soft = F.softmax(self.teacher(x) / self.temperature, dim=-1)
        logits = self.student(x)
        kl = F.kl_div(F.log_softmax(logits / self.temperature, dim=-1), soft, reduction="batchmean")
        loss = 0.7 * kl * self.temperature**2 + 0.3 * F.cross_entropy(logits, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def batches(count, size=32):
    generator = torch.Generator().manual_seed(5)
    directions = torch.randn(16, 6, generator=generator)
    for _ in range(count):
        x = torch.randn(size, 16, generator=generator)
        yield x, (x @ directions).argmax(1)


def pretrain(net, steps=15):
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for x, labels in batches(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(x), labels).backward()
        optimizer.step()
    return net


if __name__ == "__main__":
    torch.manual_seed(0)
    distiller = Distiller(pretrain(Net()))
    for step, (x, labels) in enumerate(batches(40)):
        loss = distiller.train_step(x, labels)
    print(f"final {loss:.3f}")
