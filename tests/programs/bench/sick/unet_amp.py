"""Carvana-like mask segmentation with mixed precision."""

import torch
from torch import nn, optim
from torch.nn import functional as F


class DoubleConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.net(x)


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.inc = DoubleConv(3, c)
        self.down = DoubleConv(c, 2 * c)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.out = DoubleConv(2 * c, c)
        self.head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down(F.max_pool2d(x1, 2))
        return self.head(self.out(torch.cat([x1, self.up(x2)], dim=1)))


def dice_loss(prob, target, eps=1e-6):
    inter = (prob * target).sum(dim=(1, 2))
    return 1 - ((2 * inter + eps) / (prob.sum(dim=(1, 2)) + target.sum(dim=(1, 2)) + eps)).mean()


def batches(n):
    for _ in range(n):
        mask = torch.zeros(4, 16, 16)
        for m in mask:
            a, b = torch.randint(0, 8, (2,)).tolist()
            m[a : a + 7, b : b + 7] = 1
        yield torch.stack([mask, mask, mask], 1) + 0.4 * torch.randn(4, 3, 16, 16), mask


def train_model(model, lr=1e-3, gradient_clipping=1.0, steps=25):
    optimizer = optim.RMSprop(model.parameters(), lr=lr, momentum=0.9)
    grad_scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for step, (images, masks) in enumerate(batches(steps)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = model(images).squeeze(1)
            loss = F.binary_cross_entropy_with_logits(pred.float(), masks)
            loss = loss + dice_loss(torch.sigmoid(pred.float()), masks)
        optimizer.zero_grad(set_to_none=True)
        grad_scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
        grad_scaler.step(optimizer)
        grad_scaler.update()
        if step % 8 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    torch.manual_seed(1)
    train_model(UNet())
