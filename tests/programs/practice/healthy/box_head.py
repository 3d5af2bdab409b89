import torch
import torch.nn.functional as F
from torch import nn

IMAGE = 64
GRID = 8
STRIDE = IMAGE // GRID


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(32, 32, 3, stride=2, padding=1)

    def forward(self, x):
        for conv in (self.conv1, self.conv2, self.conv3):
            x = F.leaky_relu(conv(x), 0.1)
        return x


class Head(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.cls = nn.Conv2d(32, classes, 1)
        self.box = nn.Conv2d(32, 4, 1)
        centre = (torch.arange(GRID) + 0.5) * STRIDE
        y, x = torch.meshgrid(centre, centre, indexing="ij")
        self.register_buffer("anchors", torch.stack([x - 8, y - 8, x + 8, y + 8]))

    def forward(self, features):
        offsets = self.box(features) * STRIDE
        boxes = (self.anchors + offsets).clamp(0, IMAGE)
        return self.cls(features), boxes


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.head = Head()

    def forward(self, images):
        return self.head(self.backbone(images))


def sample(n=8):
    images = 0.1 * torch.randn(n, 3, IMAGE, IMAGE)
    boxes = torch.zeros(n, 4)
    labels = torch.randint(0, 3, (n,))
    for i in range(n):
        x, y = torch.randint(4, 40, (2,)).tolist()
        w, h = torch.randint(10, 20, (2,)).tolist()
        images[i, labels[i], y : y + h, x : x + w] += 1.0
        boxes[i] = torch.tensor([x, y, x + w, y + h])
    return images, boxes, labels


def detection_loss(scores, pred, boxes, labels):
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    col, row = (centre / STRIDE).long().clamp(0, GRID - 1).unbind(1)
    index = torch.arange(len(boxes))
    cls_loss = F.cross_entropy(scores[index, :, row, col], labels)
    box_loss = F.smooth_l1_loss(pred[index, :, row, col], boxes)
    return cls_loss + 0.05 * box_loss


def main():
    torch.manual_seed(3)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(60):
        images, boxes, labels = sample()
        scores, pred = model(images)
        loss = detection_loss(scores, pred, boxes, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
