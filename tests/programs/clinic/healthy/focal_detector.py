import torch
import torch.nn.functional as F
from torch import nn


class Pyramid(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down1 = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.down2 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.lateral = nn.Conv2d(width, width, 1)

    def forward(self, x):
        fine = F.relu(self.norm1(self.down1(x)))
        coarse = F.relu(self.norm2(self.down2(fine)))
        return self.lateral(fine) + F.interpolate(coarse, scale_factor=2)


class DenseHead(nn.Module):
    def __init__(self, width=16, classes=3, prior=0.05):
        super().__init__()
        self.tower = nn.Conv2d(width, width, 3, padding=1)
        self.classify = nn.Conv2d(width, classes, 3, padding=1)
        self.regress = nn.Conv2d(width, 4, 3, padding=1)
        nn.init.constant_(self.classify.bias, -torch.log(torch.tensor((1 - prior) / prior)).item())

    def forward(self, features):
        features = F.relu(self.tower(features))
        scores = self.classify(features)
        return scores, F.softplus(self.regress(features))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.pyramid = Pyramid()
        self.head = DenseHead()

    def forward(self, images):
        return self.head(self.pyramid(images))


def focal_loss(scores, targets, alpha=0.25, gamma=2.0):
    probability = scores.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(scores, targets, reduction="none")
    right = probability * targets + (1 - probability) * (1 - targets)
    weight = alpha * targets + (1 - alpha) * (1 - targets)
    return (weight * (1 - right) ** gamma * entropy).sum() / targets.sum().clamp(min=1)


def build_model():
    torch.manual_seed(30)
    return Detector()


def build_batch():
    generator = torch.Generator().manual_seed(31)
    images = torch.randn(4, 3, 32, 32, generator=generator)
    classes = torch.zeros(4, 3, 16, 16)
    boxes = torch.zeros(4, 4, 16, 16)
    for i in range(4):
        for _ in range(3):
            label = int(torch.randint(0, 3, (1,), generator=generator))
            y, x = torch.randint(0, 16, (2,), generator=generator).tolist()
            classes[i, label, y, x] = 1.0
            boxes[i, :, y, x] = 1 + 4 * torch.rand(4, generator=generator)
    return images, (classes, boxes)


def loss_fn(output, batch):
    scores, sides = output
    classes, boxes = batch[1]
    positive = classes.amax(dim=1, keepdim=True)
    box_loss = (positive * F.smooth_l1_loss(sides, boxes, reduction="none")).sum()
    return focal_loss(scores, classes) + 0.5 * box_loss / positive.sum()
