import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE = 32
CELL = 8


class Backbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        layers = []
        channels = 1
        for stage in range(3):
            layers += [
                nn.Conv2d(channels, width, 3, stride=2, padding=1),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            channels = width
        self.layers = nn.Sequential(*layers)

    def forward(self, images):
        return self.layers(images)


class Head(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.cls = nn.Conv2d(channels, classes + 1, 1)
        self.box = nn.Conv2d(channels, 4, 1)

    def forward(self, features):
        scores = self.cls(features).flatten(2).transpose(1, 2)
        deltas = self.box(features).flatten(2).transpose(1, 2)
        return scores, deltas


def anchors():
    centre = torch.arange(SIZE // CELL) * CELL + CELL / 2
    y, x = torch.meshgrid(centre, centre, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], dim=-1)


def decode(deltas, centres):
    centre = centres + deltas[..., :2] * CELL
    extent = deltas[..., 2:].clamp(max=2).exp() * CELL
    corners = torch.cat([centre - extent / 2, centre + extent / 2], dim=-1)
    return corners.clamp(0, SIZE - 1).int()


def iou(a, b):
    top = torch.maximum(a[:, :2], b[:, :2])
    bottom = torch.minimum(a[:, 2:], b[:, 2:])
    inter = (bottom - top).clamp(min=0).prod(dim=1)
    area = lambda box: (box[:, 2:] - box[:, :2]).clamp(min=0).prod(dim=1)
    return inter / (area(a) + area(b) - inter + 1e-6)


def scene(count, generator):
    images = 0.1 * torch.randn(count, 1, SIZE, SIZE, generator=generator)
    boxes = torch.zeros(count, 4)
    labels = torch.randint(1, 3, (count,), generator=generator)
    for i in range(count):
        w, h = torch.randint(6, 14, (2,), generator=generator).tolist()
        x = int(torch.randint(0, SIZE - w, (1,), generator=generator))
        y = int(torch.randint(0, SIZE - h, (1,), generator=generator))
        images[i, 0, y : y + h, x : x + w] += 1.0 if labels[i] == 1 else -1.0
        boxes[i] = torch.tensor([x, y, x + w, y + h], dtype=torch.float32)
    return images, boxes, labels


def main():
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(2)
    backbone, head = Backbone(), Head(16, 2)
    params = list(backbone.parameters()) + list(head.parameters())
    optimizer = torch.optim.SGD(params, lr=0.02, momentum=0.9, weight_decay=1e-4)
    centres = anchors()
    for step in range(30):
        images, boxes, labels = scene(16, generator)
        middle = (boxes[:, :2] + boxes[:, 2:]) / 2
        matched = torch.cdist(middle, centres).argmin(dim=1)
        scores, deltas = head(backbone(images))
        rows = torch.arange(len(images))
        target = torch.zeros(scores.shape[:2], dtype=torch.long)
        target[rows, matched] = labels
        cls_loss = F.cross_entropy(scores.flatten(0, 1), target.flatten())
        predicted = decode(deltas[rows, matched], centres[matched])
        box_loss = (1 - iou(predicted, boxes)).mean()
        loss = cls_loss + 2.0 * box_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step}: cls {cls_loss.item():.3f} box {box_loss.item():.3f}")


main()
