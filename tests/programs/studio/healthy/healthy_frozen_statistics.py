"""Fine-tune a backbone with frozen batch-norm statistics, as detectors do."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Detector(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stage = nn.Sequential(nn.Conv2d(width, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.objectness, self.boxes = nn.Conv2d(width, 1, 1), nn.Conv2d(width, 4, 1)
        nn.init.constant_(self.objectness.bias, -2.0)

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, x):
        x = self.stage(self.stem(x))
        return self.objectness(x), self.boxes(x)


def focal(logits, target, gamma=2.0, alpha=0.75):
    loss = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p = torch.exp(-loss)
    weight = alpha * target + (1 - alpha) * (1 - target)
    return (weight * (1 - p) ** gamma * loss).sum() / target.sum().clamp(min=1)


def scenes(n, size=16):
    images = 0.3 * torch.randn(n, 1, size, size)
    target = torch.zeros(n, 1, size // 2, size // 2)
    boxes = torch.zeros(n, 4, size // 2, size // 2)
    for i in range(n):
        if torch.rand(()) < 0.3:
            continue
        r, c = torch.randint(2, size // 2 - 2, (2,)).tolist()
        half = int(torch.randint(1, 4, ()))
        images[i, 0, 2 * r - half : 2 * r + half, 2 * c - half : 2 * c + half] += 2
        target[i, 0, r, c] = 1
        boxes[i, :, r, c] = half / 4
    return images, target, boxes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Detector()
    model.stem[0].requires_grad_(False)
    model.train()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.02, momentum=0.9, weight_decay=1e-4)
    for step in range(args.steps):
        images, target, boxes = scenes(16)
        objectness, offsets = model(images)
        located = target.bool().expand_as(boxes)
        loss = focal(objectness, target)
        if located.any():
            loss = loss + F.l1_loss(offsets[located], boxes[located])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 5.0)
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
