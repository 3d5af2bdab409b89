import argparse

import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self, latent=8, width=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(latent, width, 4), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 1, 4),
        )

    def forward(self, x):
        return self.net(x).flatten()


def stripes(n):
    phase = torch.rand(n, 1, 1, 1) * 6.28
    axis = torch.arange(16).view(1, 1, 1, 16) * 0.8
    return torch.sin(axis + phase).expand(n, 1, 16, 16) * 0.9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16)
    opt = parser.parse_args()
    torch.manual_seed(999)
    netG, netD = Generator(), Discriminator()
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=5e-4, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=5e-4, betas=(0.5, 0.999))
    ones, zeros = torch.ones(opt.batch_size), torch.zeros(opt.batch_size)
    for i in range(opt.iterations):
        err_real = criterion(netD(stripes(opt.batch_size)), ones)
        err_real.backward()
        fake = netG(torch.randn(opt.batch_size, 8, 1, 1))
        err_fake = criterion(netD(fake.detach()), zeros)
        err_fake.backward()
        optimizerD.step()

        netG.zero_grad()
        err_g = criterion(netD(fake), ones)
        err_g.backward()
        optimizerG.step()
        if i % 10 == 0:
            print(i, (err_real + err_fake).item(), err_g.item())


if __name__ == "__main__":
    main()
