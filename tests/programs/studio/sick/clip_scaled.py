"""Train a small U-Net in mixed precision."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1, self.down2 = DoubleConv(1, width), DoubleConv(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.fuse = DoubleConv(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        return self.out(self.fuse(torch.cat([first, self.up(second)], 1)))


def discs(n, size=16):
    grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
    centre = torch.randint(4, size - 4, (n, 2, 1, 1))
    mask = ((grid - centre).pow(2).sum(1, keepdim=True) < 12).float()
    return mask + 0.3 * torch.randn_like(mask), mask


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--gradient-clipping", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = UNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    for step in range(args.steps):
        images, masks = discs(8)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(images)
        loss = F.binary_cross_entropy_with_logits(logits.float(), masks)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.gradient_clipping)
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
