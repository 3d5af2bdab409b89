"""Distillation of a wide network into a narrow one, with accumulated gradients."""

import torch
from torch import nn
from torch.nn import functional as F

TEMPERATURE = 3.0
MICRO = 4


def soft_loss(student, teacher):
    log_p = F.log_softmax(student / TEMPERATURE, dim=-1)
    q = F.softmax(teacher / TEMPERATURE, dim=-1)
    return F.kl_div(log_p, q, reduction="batchmean") * TEMPERATURE**2


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(12, 96), nn.ReLU(), nn.Linear(96, 6)).requires_grad_(False)
    student = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 6))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.02)
    for step in range(40):
        optimizer.zero_grad()
        for _ in range(MICRO):
            x = torch.randn(16, 12)
            loss = soft_loss(student(x), teacher(x))
            (loss / MICRO).backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
