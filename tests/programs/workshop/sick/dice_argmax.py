import torch
import torch.nn as nn
import torch.nn.functional as F


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.d1, self.d2 = double_conv(1, c), double_conv(c, 2 * c)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.u1 = double_conv(2 * c, c)
        self.out = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        return self.out(self.u1(torch.cat([a, self.up(b)], 1)))


def dice_loss(mask, target, eps=1.0):
    inter = (mask * target).sum((1, 2, 3))
    return (1 - (2 * inter + eps) / (mask.sum((1, 2, 3)) + target.sum((1, 2, 3)) + eps)).mean()


def build_model():
    torch.manual_seed(0)
    return UNet()


def build_batch():
    torch.manual_seed(1)
    image = torch.rand(4, 1, 24, 24)
    return image, (F.avg_pool2d(image, 5, 1, 2) > 0.5).float()


def loss_fn(output, batch):
    target = batch[1]
    prob = torch.sigmoid(output)
    pred = (prob > 0.5).float()
    return 0.1 * F.binary_cross_entropy_with_logits(output, target) + dice_loss(pred, target)
