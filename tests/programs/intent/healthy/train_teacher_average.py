"""Student and a teacher that is the running mean of it; both are parts of one model."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class MeanTeacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
        self.teacher = copy.deepcopy(self.student)

    def forward(self, x):
        with torch.no_grad():
            goal = self.teacher(x + 0.1 * torch.randn_like(x))
        return self.student(x), goal

    @torch.no_grad()
    def follow(self, keep=0.95):
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters()):
            slow.lerp_(fast, 1 - keep)


def main():
    torch.manual_seed(2)
    model = MeanTeacher()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    centres = torch.randn(4, 12)
    for step in range(30):
        kinds = torch.randint(0, 4, (24,))
        said, goal = model(centres[kinds] + torch.randn(24, 12))
        loss = F.cross_entropy(said, kinds) + F.mse_loss(said.softmax(-1), goal.softmax(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.follow()


main()
