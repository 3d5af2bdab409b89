import argparse

import torch
import torch.nn.functional as F
from torch import nn


def network(width, classes=6):
    return nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))


def data(centres, n):
    labels = torch.randint(0, len(centres), (n,))
    return centres[labels] + torch.randn(n, 16), labels


def train_teacher(centres, steps=60):
    teacher = network(64)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(steps):
        x, y = data(centres, 64)
        loss = F.cross_entropy(teacher(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return teacher.eval().requires_grad_(False)


def distillation_loss(student_logits, teacher_logits, labels, temperature, alpha):
    soft_targets = F.softmax(teacher_logits / temperature, dim=-1)
    soft_student = F.log_softmax(student_logits / temperature, dim=-1)
    soft = F.kl_div(soft_student, soft_targets, reduction="batchmean") * temperature**2
    return alpha * soft + (1 - alpha) * F.cross_entropy(student_logits, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--temperature", type=float, default=3.0)
    parser.add_argument("--alpha", type=float, default=0.7)
    args = parser.parse_args()
    torch.manual_seed(15)
    centres = 1.5 * torch.randn(6, 16)
    teacher = train_teacher(centres)
    student = network(16)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    for step in range(80):
        x, y = data(centres, 64)
        with torch.no_grad():
            teacher_logits = teacher(x)
        loss = distillation_loss(student(x), teacher_logits, y, args.temperature, args.alpha)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
