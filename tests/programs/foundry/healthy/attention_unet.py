"""Attention U-Net that separates blobs from their background."""
import torch
import torch.nn.functional as F
from torch import nn


def double_conv(n_in, n_out):
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3, padding=1), nn.InstanceNorm2d(n_out, affine=True), nn.ReLU(inplace=True),
        nn.Conv2d(n_out, n_out, 3, padding=1), nn.InstanceNorm2d(n_out, affine=True), nn.ReLU(inplace=True),
    )


class AttentionGate(nn.Module):
    def __init__(self, n_skip, n_gate):
        super().__init__()
        self.from_skip = nn.Conv2d(n_skip, n_skip, 1, bias=False)
        self.from_gate = nn.Conv2d(n_gate, n_skip, 1)
        self.psi = nn.Conv2d(n_skip, n_skip, 1)

    def forward(self, skip, gate):
        joint = F.relu(self.from_skip(skip) + self.from_gate(gate))
        attention = torch.sigmoid(self.psi(joint))
        attention = attention * skip
        return attention


class Up(nn.Module):
    def __init__(self, n_in, n_skip, n_out):
        super().__init__()
        self.up = nn.ConvTranspose2d(n_in, n_in, 2, 2)
        self.gate = AttentionGate(n_skip, n_in)
        self.conv = double_conv(n_in + n_skip, n_out)

    def forward(self, x, skip):
        x = self.up(x)
        return self.conv(torch.cat([x, self.gate(skip, x)], 1))


class AttentionUNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.down = nn.ModuleList([double_conv(1, base), double_conv(base, 2 * base), double_conv(2 * base, 4 * base)])
        self.ups = nn.ModuleList([Up(4 * base, 2 * base, 2 * base), Up(2 * base, base, base)])
        self.out = nn.Conv2d(base, 1, 1)

    def forward(self, batch):
        x, skips = batch[0], []
        for i, stage in enumerate(self.down):
            x = stage(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for up, skip in zip(self.ups, reversed(skips[:-1])):
            x = up(x, skip)
        return self.out(x)


def build_model():
    torch.manual_seed(221)
    return AttentionUNet()


def build_batch():
    g = torch.Generator().manual_seed(222)
    grid = torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij"))
    centre = 3 + 10 * torch.rand(6, 2, 1, 1, generator=g)
    mask = ((grid - centre).pow(2).sum(1, keepdim=True) < 12).float()
    return mask + 0.4 * torch.randn(mask.shape, generator=g), mask


def loss_fn(output, batch):
    target = batch[1]
    p = torch.sigmoid(output)
    dice = 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)
    return F.binary_cross_entropy_with_logits(output, target) + dice
