"""Semi-supervised mean teacher: a few labels, a consistency loss towards a moving average of the student."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


@torch.no_grad()
def update_teacher(teacher, student, decay=0.95):
    for t, s in zip(student.parameters(), teacher.parameters()):
        t.mul_(decay).add_(s, alpha=1 - decay)


def main(steps=100):
    torch.set_num_threads(1)
    torch.manual_seed(480)
    labels = torch.randint(0, 3, (300,))
    x = 1.2 * torch.randn(3, 10)[labels] + torch.randn(300, 10)
    labelled = torch.arange(30)
    student = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for step in range(steps):
        rows = torch.randint(0, 300, (64,))
        noisy = x[rows] + 0.3 * torch.randn(64, 10)
        target = teacher(x[rows]).softmax(dim=-1)
        consistency = F.mse_loss(student(noisy).softmax(dim=-1), target)
        loss = F.cross_entropy(student(x[labelled]), labels[labelled]) + 3.0 * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_teacher(teacher, student)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} consistency {consistency.item():.4f}")


if __name__ == "__main__":
    main()
