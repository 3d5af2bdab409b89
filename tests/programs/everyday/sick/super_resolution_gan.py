import torch
import torch.nn as nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.PReLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, low):
        return F.pixel_shuffle(self.body(low), 2)


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(width, 1, 3, padding=1)
        )

    def forward(self, image):
        return self.body(image).mean((1, 2, 3))


def pairs(n, size=16):
    coarse = torch.rand(n, 1, 4, 4)
    high = F.interpolate(coarse, size=size, mode="bicubic", align_corners=False)
    return F.avg_pool2d(high, 2), high


class GanTrainer:
    def __init__(self, lr=2e-3):
        self.generator = Generator()
        self.discriminator = Discriminator()
        self.opt_g = torch.optim.Adam(self.discriminator.parameters(), lr=lr)
        self.opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=lr)

    def step(self, low, high):
        fake = self.generator(low)
        d_loss = F.softplus(-self.discriminator(high)).mean() + F.softplus(self.discriminator(fake.detach())).mean()
        self.opt_d.zero_grad()
        d_loss.backward()
        self.opt_d.step()

        g_loss = F.l1_loss(fake, high) + 0.01 * F.softplus(-self.discriminator(fake)).mean()
        self.opt_g.zero_grad()
        g_loss.backward()
        self.opt_g.step()
        return d_loss.item(), g_loss.item()


if __name__ == "__main__":
    torch.manual_seed(6)
    trainer = GanTrainer()
    for i in range(80):
        d, g = trainer.step(*pairs(16))
        if i % 20 == 0:
            print(f"{i}: D {d:.3f} G {g:.3f}")
