"""Self training for segmentation: the student follows a frozen teacher on unlabelled images."""

import torch
from torch import nn
from torch.nn import functional as F

NUM_CLASSES = 4


class SegNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Conv2d(width, NUM_CLASSES, 1)

    def forward(self, x):
        return {"out": self.head(self.body(x))}


def labelled_batch(n=4):
    labels = torch.randint(NUM_CLASSES, (n, 4, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
    colours = torch.randn(NUM_CLASSES, 3)
    images = colours[labels].permute(0, 3, 1, 2) + 0.2 * torch.randn(n, 3, 16, 16)
    return images, labels


def distillation(student_out, teacher_out):
    student = F.softmax(student_out["out"], dim=1)
    teacher = F.softmax(teacher_out["out"], dim=1)
    loss = F.kl_div(student, teacher, reduction="none")
    return loss.sum(dim=1).mean()


def main():
    torch.manual_seed(3)
    images, labels = labelled_batch()
    teacher, model = SegNet(16), SegNet()
    warm = torch.optim.Adam(teacher.parameters(), lr=1e-2)
    for _ in range(15):
        warm.zero_grad()
        F.cross_entropy(teacher(images)["out"], labels).backward()
        warm.step()
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad = False

    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for it in range(30):
        unlabelled = images + 0.3 * torch.randn_like(images)
        output = model(images)
        loss = F.cross_entropy(output["out"], labels)
        with torch.no_grad():
            teacher_out = teacher(unlabelled)
        loss_kd = distillation(model(unlabelled), teacher_out)
        loss = loss + 0.5 * loss_kd
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if it % 10 == 0:
            print(it, round(loss.item(), 4), round(loss_kd.item(), 4))


if __name__ == "__main__":
    main()
