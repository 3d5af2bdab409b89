"""Segmentation of noisy discs with autocast on the CPU."""
import argparse

import torch
import torch.nn as nn


class SmallUNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.GroupNorm(2, c), nn.ReLU())
        self.mid = nn.Sequential(nn.Conv2d(c, 2 * c, 3, stride=2, padding=1), nn.GroupNorm(2, 2 * c), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.out = nn.Conv2d(2 * c, 1, 1)

    def forward(self, x):
        d = self.down(x)
        return self.out(torch.cat([d, self.up(self.mid(d))], dim=1))


def discs(n, g, size=16):
    axis = torch.arange(size).float()
    cx, cy = (4 + 8 * torch.rand(n, 1, 1, generator=g) for _ in range(2))
    r = 2 + 3 * torch.rand(n, 1, 1, generator=g)
    mask = (((axis[None, :, None] - cy) ** 2 + (axis[None, None, :] - cx) ** 2) < r ** 2).float()
    image = mask + 0.5 * torch.randn(n, size, size, generator=g)
    return image[:, None], mask[:, None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args([])
    torch.manual_seed(281)
    g = torch.Generator().manual_seed(282)
    net = SmallUNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 16)
    criterion = nn.BCEWithLogitsLoss()
    for step in range(args.steps):
        images, masks = discs(16, g)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = net(images)
        loss = criterion(logits.float(), masks)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), args.clip)
        scaler.step(optimizer)
        scaler.update()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
