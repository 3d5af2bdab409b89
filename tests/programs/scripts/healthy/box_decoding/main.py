import numpy as np
import torch
import torch.nn.functional as F
from models import Detector
from scenes import scenes


def decode(reg, size=16.0):
    center = size * torch.sigmoid(reg[:, :2])
    extent = size * torch.sigmoid(reg[:, 2:])
    return torch.cat([center - extent / 2, center + extent / 2], 1)


def giou(a, b):
    area = lambda x: (x[:, 2] - x[:, 0]).clamp(min=0) * (x[:, 3] - x[:, 1]).clamp(min=0)
    top, bottom = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    inter = (bottom - top).clamp(min=0).prod(1)
    union = area(a) + area(b) - inter
    low, high = torch.minimum(a[:, :2], b[:, :2]), torch.maximum(a[:, 2:], b[:, 2:])
    hull = (high - low).prod(1)
    return inter / (union + 1e-6) - (hull - union) / (hull + 1e-6)


def detection_loss(cls, reg, boxes, labels):
    predicted = decode(reg)
    return {"cls": F.cross_entropy(cls, labels), "giou": (1 - giou(predicted, boxes)).mean()}


def main(iterations=80):
    torch.manual_seed(33)
    model = Detector()
    backbone = [p for n, p in model.named_parameters() if n.startswith("backbone")]
    heads = [p for n, p in model.named_parameters() if not n.startswith("backbone")]
    optimizer = torch.optim.Adam([{"params": backbone, "lr": 1e-3}, {"params": heads, "lr": 3e-3}], lr=1e-3)
    for i in range(iterations):
        images, boxes, labels = scenes(16)
        cls, reg = model(images)
        losses = detection_loss(cls, reg, boxes, labels)
        total = sum(losses.values())
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        if i % 20 == 0:
            print(i, {k: round(v.item(), 3) for k, v in losses.items()})


main()
