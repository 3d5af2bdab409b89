import torch
import torch.nn as nn
import torch.nn.functional as F


class PyramidHead(nn.Module):
    def __init__(self, channels=8, scales=(1, 2, 4), classes=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.branches = {str(s): nn.Conv2d(channels, channels, 3, padding=1) for s in scales}
        self.classify = nn.Linear(channels * len(scales), classes)

    def forward(self, image):
        x = self.stem(image)
        pooled = []
        for scale, conv in self.branches.items():
            y = F.relu(conv(F.avg_pool2d(x, int(scale))))
            pooled.append(y.mean(dim=(2, 3)))
        return self.classify(torch.cat(pooled, dim=1))


def build_model():
    torch.manual_seed(61)
    return PyramidHead()


def build_batch():
    g = torch.Generator().manual_seed(62)
    label = torch.randint(0, 3, (24,), generator=g)
    image = torch.randn(24, 1, 16, 16, generator=g) * (1 + label.view(-1, 1, 1, 1))
    return image, label


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
