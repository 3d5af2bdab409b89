import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.block(x)


class SmallUNet(nn.Module):
    def __init__(self, channels=8, classes=3):
        super().__init__()
        self.inc = DoubleConv(1, channels)
        self.down = DoubleConv(channels, channels * 2)
        self.bottom = DoubleConv(channels * 2, channels * 4)
        self.up1 = nn.ConvTranspose2d(channels * 4, channels * 2, 2, stride=2)
        self.dec1 = DoubleConv(channels * 4, channels * 2)
        self.up2 = nn.ConvTranspose2d(channels * 2, channels, 2, stride=2)
        self.dec2 = DoubleConv(channels * 2, channels)
        self.outc = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        y = self.dec1(torch.cat([self.up1(c), b], dim=1))
        y = self.dec2(torch.cat([self.up2(y), a], dim=1))
        return self.outc(y)


def make_batch(n, size, generator):
    image = torch.rand(n, 1, size, size, generator=generator) * 0.3
    mask = torch.zeros(n, size, size, dtype=torch.long)
    for i in range(n):
        x, y = torch.randint(0, size - 6, (2,), generator=generator).tolist()
        label = int(torch.randint(1, 3, (1,), generator=generator))
        image[i, 0, y : y + 6, x : x + 6] += 0.5 * label
        mask[i, y : y + 6, x : x + 6] = label
    return image, mask


def train(args):
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    model = SmallUNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=True)
    criterion = nn.CrossEntropyLoss()
    for step in range(args.steps):
        image, mask = make_batch(args.batch, 16, generator)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(image)
            loss = criterion(logits.float(), mask)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        scaler.step(optimizer)
        scaler.update()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
