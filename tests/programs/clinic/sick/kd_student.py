"""Distil a wide classifier into a narrow one, with hard and soft labels."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def network(width):
    return nn.Sequential(
        nn.Linear(20, width), nn.BatchNorm1d(width), nn.ReLU(),
        nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
        nn.Linear(width, 5),
    )


def dataset(n=1600):
    generator = torch.Generator().manual_seed(7)
    centres = 1.4 * torch.randn(5, 20, generator=generator)
    labels = torch.randint(0, 5, (n,), generator=generator)
    return TensorDataset(centres[labels] + torch.randn(n, 20, generator=generator), labels)


class DistillationLoss(nn.Module):
    def __init__(self, temperature, weight):
        super().__init__()
        self.temperature = temperature
        self.weight = weight

    def forward(self, student_scores, teacher_scores, labels):
        t = self.temperature
        student = F.softmax(student_scores / t, dim=1)
        teacher = F.softmax(teacher_scores / t, dim=1)
        soft = F.kl_div(student, teacher, reduction="batchmean") * t * t
        hard = F.cross_entropy(student_scores, labels)
        return self.weight * soft + (1 - self.weight) * hard


def fit_teacher(teacher, loader, epochs):
    optimizer = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    teacher.train()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(teacher(x), y).backward()
            optimizer.step()
    return teacher.eval().requires_grad_(False)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=3.0)
    parser.add_argument("--weight", type=float, default=0.7)
    args = parser.parse_args()
    torch.manual_seed(3)
    train, valid = random_split(dataset(), [1280, 320])
    train_loader = DataLoader(train, batch_size=64, shuffle=True)
    valid_loader = DataLoader(valid, batch_size=160)
    teacher = fit_teacher(network(96), train_loader, 3)
    student = network(16)
    criterion = DistillationLoss(args.temperature, args.weight)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        for x, y in train_loader:
            with torch.no_grad():
                teacher_scores = teacher(x)
            loss = criterion(student(x), teacher_scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch}: {loss.item():.3f} accuracy {accuracy(student, valid_loader):.3f}")


if __name__ == "__main__":
    main()
