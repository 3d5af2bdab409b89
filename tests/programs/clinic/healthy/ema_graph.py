import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call


class Student(nn.Module):
    def __init__(self, inputs=10, width=40, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(F.relu(self.body(x)))


class MeanTeacher:
    def __init__(self, student, decay=0.95):
        self.student = student
        self.decay = decay
        self.weights = {name: p.detach().clone() for name, p in student.named_parameters()}

    def update(self):
        with torch.no_grad():
            for name, parameter in self.student.named_parameters():
                old = self.weights[name]
                self.weights[name] = self.decay * old + (1 - self.decay) * parameter

    def __call__(self, x):
        with torch.no_grad():
            return functional_call(self.student, self.weights, (x,)).softmax(dim=1)


def clusters(n):
    y = torch.randint(0, 3, (n,))
    angle = y * 2.094
    x = 0.4 * torch.randn(n, 10)
    x[:, 0] += angle.cos()
    x[:, 1] += angle.sin()
    return x, y


def main():
    torch.manual_seed(29)
    student = Student()
    teacher = MeanTeacher(student)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    for step in range(80):
        x, y = clusters(16)
        unlabelled, _ = clusters(64)
        supervised = F.cross_entropy(student(x), y)
        noisy = unlabelled + 0.1 * torch.randn_like(unlabelled)
        consistency = F.mse_loss(student(noisy).softmax(dim=1), teacher(unlabelled))
        loss = supervised + min(1.0, step / 40) * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        teacher.update()
        if step % 20 == 0:
            print(f"{step}: {supervised.item():.3f} {consistency.item():.4f}")


if __name__ == "__main__":
    main()
