"""Distil a wide teacher into a narrow student."""

import torch
from torch import nn
from torch.nn import functional as F


def make_net(width, d_in=20, classes=5):
    return nn.Sequential(nn.Linear(d_in, width), nn.ReLU(), nn.Linear(width, classes))


def make_data(n=512, d_in=20, classes=5):
    x = torch.randn(n, d_in)
    w = torch.randn(d_in, classes)
    return x, (x @ w + 0.5 * torch.randn(n, classes)).argmax(dim=1)


def pretrain(teacher, x, y):
    opt = torch.optim.Adam(teacher.parameters(), lr=1e-2)
    for _ in range(20):
        opt.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        opt.step()


class Distiller:
    def __init__(self, teacher, student, temperature=4.0, soft_weight=0.9):
        self.teacher, self.student = teacher, student
        self.temperature = temperature
        self.soft_weight = soft_weight
        self.optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
        self.kl = nn.KLDivLoss(reduction="batchmean", log_target=True)

    def step(self, data, target):
        self.teacher.eval()
        with torch.no_grad():
            large_logits = self.teacher(data)
        output = self.student(data)
        soft_targets = F.log_softmax(large_logits / self.temperature, dim=-1)
        soft_prob = F.log_softmax(output / self.temperature, dim=-1)
        soft_loss = self.kl(soft_prob, soft_targets) * self.temperature**2
        label_loss = F.cross_entropy(output, target)
        loss = self.soft_weight * soft_loss + (1 - self.soft_weight) * label_loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), soft_loss.item()


def main():
    torch.manual_seed(7)
    x, y = make_data()
    teacher, student = make_net(64), make_net(8)
    pretrain(teacher, x, y)
    distiller = Distiller(teacher, student)
    for epoch in range(4):
        for batch in torch.randperm(len(x)).split(64):
            loss, soft = distiller.step(x[batch], y[batch])
        print(f"epoch {epoch} loss {loss:.4f} soft {soft:.4f}")


main()
