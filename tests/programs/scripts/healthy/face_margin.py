import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ArcFace(nn.Module):
    def __init__(self, classes, dim, s=16.0, m=0.2):
        super().__init__()
        self.centres = nn.Parameter(torch.empty(classes, dim))
        nn.init.xavier_uniform_(self.centres)
        self.s, self.m = s, m

    def forward(self, embedding, label):
        cosine = F.linear(F.normalize(embedding), F.normalize(self.centres))
        sine = (1.0 - cosine.pow(2)).clamp(1e-6, 1).sqrt()
        phi = cosine * math.cos(self.m) - sine * math.sin(self.m)
        hot = F.one_hot(label, cosine.shape[1]).to(cosine.dtype)
        return F.cross_entropy(self.s * torch.where(hot > 0, phi, cosine), label)


class FaceNet(nn.Module):
    def __init__(self, dim=16, width=12, depth=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.stages = nn.ModuleList()
        for i in range(depth):
            self.stages.append(nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.PReLU(width)))
        self.embed = nn.Linear(width, dim)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            x = x + stage(x)
        return self.embed(x.mean((2, 3)))


def faces(n, identities):
    label = torch.randint(0, len(identities), (n,))
    return identities[label] + 0.2 * torch.randn(n, 1, 8, 8), label


def main(steps=80):
    torch.manual_seed(100)
    identities = torch.randn(20, 1, 8, 8)
    model, criterion = FaceNet(), ArcFace(20, 16)
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": criterion.parameters()}], lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [40, 60], 0.3)
    for step in range(steps):
        image, label = faces(32, identities)
        loss = criterion(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(step, loss.item())


main()
