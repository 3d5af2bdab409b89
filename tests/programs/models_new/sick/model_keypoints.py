import torch
import torch.nn as nn


def decode(heatmaps):
    b, k, h, w = heatmaps.shape
    flat = heatmaps.view(b, k, -1)
    index = flat.argmax(-1)
    return torch.stack([index % w, index // w], -1).float()


class PoseNet(nn.Module):
    def __init__(self, joints=3):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
            nn.Conv2d(12, joints, 1),
        )

    def forward(self, image):
        return decode(self.net(image))


def build_model():
    torch.manual_seed(341)
    return PoseNet()


def build_batch():
    g = torch.Generator().manual_seed(342)
    point = torch.randint(2, 14, (16, 2), generator=g)
    image = torch.zeros(16, 1, 16, 16)
    image[torch.arange(16), 0, point[:, 1], point[:, 0]] = 5.0
    return image, point.float().unsqueeze(1).expand(-1, 3, -1)


def loss_fn(output, batch):
    return nn.functional.smooth_l1_loss(output, batch[1])
