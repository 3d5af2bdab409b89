import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.SiLU(),
        nn.Conv2d(cout, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.SiLU(),
    )


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1 = double_conv(1, width)
        self.down2 = double_conv(width, 2 * width)
        self.middle = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.conv2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.conv1 = double_conv(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        d1 = self.down1(x)
        d2 = self.down2(F.max_pool2d(d1, 2))
        m = self.middle(F.max_pool2d(d2, 2))
        u2 = self.conv2(torch.cat([self.up2(m), d2], 1))
        u1 = self.conv1(torch.cat([self.up1(u2), d1], 1))
        return self.out(u1)


def dice_loss(logits, target, eps=1.0):
    probs = torch.sigmoid(logits)
    mask = probs
    overlap = (mask * target).sum((1, 2, 3))
    total = mask.sum((1, 2, 3)) + target.sum((1, 2, 3))
    return 1 - ((2 * overlap + eps) / (total + eps)).mean()


def make_batch(n=8, size=24):
    grid = torch.arange(size).float()
    centre = torch.rand(n, 2, 1, 1) * 12 + 6
    radius = torch.rand(n, 1, 1) * 3 + 3
    distance = (grid.view(1, -1, 1) - centre[:, 0]) ** 2 + (grid.view(1, 1, -1) - centre[:, 1]) ** 2
    target = (distance < radius**2).float().unsqueeze(1)
    return target + 0.4 * torch.randn_like(target), target


model = UNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(40):
    images, target = make_batch()
    logits = model(images)
    loss = F.binary_cross_entropy_with_logits(logits, target) + dice_loss(logits, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, round(loss.item(), 4))
