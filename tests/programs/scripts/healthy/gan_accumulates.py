import torch
import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(latent, width * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(width * 2), nn.ReLU(True),
            nn.ConvTranspose2d(width * 2, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
            nn.Conv2d(width, 1, 3, 1, 1), nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, width * 2, 4, 1, 0), nn.LeakyReLU(0.2, inplace=True), nn.Flatten(), nn.Linear(width * 2, 1),
        )

    def forward(self, x):
        return self.main(x).view(-1)


class GAN:
    def __init__(self, latent=8, width=12, lr=5e-4):
        self.latent = latent
        self.generator, self.discriminator = Generator(latent, width), Discriminator(width)
        self.criterion = nn.BCEWithLogitsLoss()
        self.optimizers = {
            "gen": torch.optim.Adam(self.generator.parameters(), lr=lr, betas=(0.5, 0.999)),
            "disc": torch.optim.Adam(self.discriminator.parameters(), lr=lr, betas=(0.5, 0.999)),
        }

    def step(self, data):
        n = data.shape[0]
        real, fake = torch.ones(n), torch.zeros(n)
        self.discriminator.zero_grad()
        noise = torch.randn(n, self.latent, 1, 1)
        loss_real = self.criterion(self.discriminator(data), real)
        loss_real.backward()
        images = self.generator(noise)
        loss_fake = self.criterion(self.discriminator(images.detach()), fake)
        loss_fake.backward()
        self.optimizers["disc"].step()
        self.generator.zero_grad()
        loss_gen = self.criterion(self.discriminator(images), real)
        loss_gen.backward()
        self.optimizers["gen"].step()
        return (loss_real + loss_fake).item(), loss_gen.item()


def blobs(n):
    grid = torch.linspace(-1, 1, 8)
    c = torch.rand(n, 2, 1, 1) * 0.8 - 0.4
    d = (grid[None, None, :] - c[:, 0]) ** 2 + (grid[None, :, None] - c[:, 1]) ** 2
    return (2 * torch.exp(-d * 6) - 1).unsqueeze(1)


if __name__ == "__main__":
    torch.manual_seed(1)
    gan = GAN()
    for i in range(100):
        out = gan.step(blobs(32))
        if i % 25 == 0:
            print(i, out)
