"""Semi-supervised segmentation of time series with a mean teacher."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class SegmentNet(nn.Module):
    def __init__(self, c=16, classes=3):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(2, c, 5, padding=2), nn.BatchNorm1d(c), nn.ReLU(), nn.Dropout(0.1),
            nn.Conv1d(c, c, 5, padding=2), nn.BatchNorm1d(c), nn.ReLU(), nn.Conv1d(c, classes, 1),
        )

    def forward(self, x):
        return self.net(x)


class MeanTeacher:
    def __init__(self, student, decay=0.95):
        self.model = copy.deepcopy(student).eval()
        self.model.requires_grad_(False)
        self.decay = decay

    def update(self, student):
        new = student.state_dict()
        averaged = {
            k: self.decay * v + (1 - self.decay) * new[k] if v.is_floating_point() else new[k]
            for k, v in self.model.state_dict().items()
        }
        self.model.load_state_dict(averaged)

    def predict(self, x):
        with torch.no_grad():
            return self.model(x).softmax(dim=1)


def series(n, length=40):
    labels = torch.randint(3, (n, length // 8)).repeat_interleave(8, dim=1)
    level = torch.tensor([-1.0, 0.0, 1.0])[labels]
    return torch.stack([level, level.pow(2)], 1) + 0.3 * torch.randn(n, 2, length), labels


def main():
    torch.manual_seed(2)
    student = SegmentNet()
    teacher = MeanTeacher(student)
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
    for step in range(40):
        x, y = series(8)
        unlabelled, _ = series(16)
        loss = F.cross_entropy(student(x), y)
        ramp = min(1.0, step / 20)
        if ramp > 0:
            target = teacher.predict(unlabelled)
            noisy = unlabelled + 0.1 * torch.randn_like(unlabelled)
            loss = loss + ramp * F.mse_loss(student(noisy).softmax(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        teacher.update(student)
        if step % 10 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
