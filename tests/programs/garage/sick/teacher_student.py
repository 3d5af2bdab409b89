import torch
import torch.nn.functional as F
from torch import nn


def make_net(width):
    return nn.Sequential(
        nn.Conv1d(2, width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(width, width, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(width, 4),
    )


def signals(count, length=32):
    label = torch.randint(0, 4, (count,))
    t = torch.linspace(0, 1, length)
    base = torch.sin(2 * torch.pi * (label[:, None] + 1) * t + torch.rand(count, 1))
    return torch.stack([base, base.roll(3, dims=1)], dim=1) + 0.4 * torch.randn(count, 2, length), label


class DistillationLoss(nn.Module):
    def __init__(self, temperature=3.0, alpha=0.7):
        super().__init__()
        self.t = temperature
        self.alpha = alpha

    def forward(self, student_logits, teacher_logits, labels):
        student = F.softmax(student_logits / self.t, dim=1)
        teacher = F.softmax(teacher_logits / self.t, dim=1)
        soft = F.kl_div(student, teacher, reduction="batchmean") * self.t**2
        hard = F.cross_entropy(student_logits, labels)
        return self.alpha * soft + (1 - self.alpha) * hard


def train_teacher(steps=40):
    teacher = make_net(24)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=1e-2)
    for _ in range(steps):
        x, y = signals(64)
        loss = F.cross_entropy(teacher(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return teacher.eval()


def main():
    torch.manual_seed(19)
    teacher = train_teacher()
    student = make_net(8)
    criterion = DistillationLoss()
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
    for step in range(40):
        x, y = signals(64)
        with torch.no_grad():
            teacher_logits = teacher(x)
        student_logits = student(x)
        loss = criterion(student_logits, teacher_logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            accuracy = (student_logits.argmax(1) == y).float().mean().item()
            print(f"{step} loss {loss.item():.4f} accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
