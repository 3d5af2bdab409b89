"""Single-scale grid detector: objectness plus log-size regression for the cells that contain an object."""
import torch
import torch.nn as nn
import torch.nn.functional as F

ANCHOR = 4.0


class GridDetector(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, channels, 3, stride=2, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
                                  nn.Conv2d(channels, channels, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Conv2d(channels, 3, 1)

    def forward(self, image, size=None):
        return self.head(self.body(image))


def build_model():
    torch.manual_seed(211)
    return GridDetector()


def build_batch():
    g = torch.Generator().manual_seed(212)
    size = torch.zeros(6, 2, 5, 5)
    has = torch.rand(6, 5, 5, generator=g) < 0.2
    size[:, 0][has] = 2 + 6 * torch.rand(int(has.sum()), generator=g)
    size[:, 1][has] = 2 + 6 * torch.rand(int(has.sum()), generator=g)
    image = F.interpolate(size.sum(1, keepdim=True), scale_factor=4) / 8 + 0.1 * torch.randn(6, 1, 20, 20, generator=g)
    return {"image": image, "size": size}


def loss_fn(output, batch):
    size = batch["size"]
    positive = size[:, :1] > 0
    objectness = F.binary_cross_entropy_with_logits(output[:, :1], positive.float())
    target = torch.log(size.clamp(min=1e-3) / ANCHOR)
    error = (output[:, 1:] - target) ** 2
    error = torch.where(positive, error, torch.zeros_like(error))
    return objectness + error.sum() / positive.sum()
