"""Distil a wide network into a narrow one."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


def network(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def batches(x, y, size=64):
    for rows in torch.randperm(len(x)).split(size):
        yield x[rows], y[rows]


def train_teacher(x, y, epochs=4):
    teacher = network(128)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(epochs):
        for data, label in batches(x, y):
            optimizer.zero_grad()
            F.cross_entropy(teacher(data), label).backward()
            optimizer.step()
    return teacher.eval().requires_grad_(False)


def distillation_loss(student_logits, teacher_logits, temperature=3.0):
    soft_teacher = F.softmax(teacher_logits / temperature, dim=1)
    soft_student = F.log_softmax(student_logits / temperature, dim=1)
    return F.kl_div(soft_student, soft_teacher, reduction="batchmean") * temperature**2


def train_student(teacher, x, y, epochs=4):
    student = network(24)
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
    for epoch in range(epochs):
        for data, label in batches(x, y):
            with torch.no_grad():
                teacher_logits = teacher(data)
            loss = distillation_loss(student(data), teacher_logits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        agree = (student(x).argmax(1) == teacher(x).argmax(1)).float().mean()
        print(f"epoch {epoch} loss {loss.item():.4f} agreement {agree.item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(15)
    digits = load_digits()
    x = torch.tensor(digits.data[:1024], dtype=torch.float32) / 16
    y = torch.tensor(digits.target[:1024])
    train_student(train_teacher(x, y), x, y)
