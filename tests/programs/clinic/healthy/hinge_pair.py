import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


class Generator(nn.Module):
    def __init__(self, latent=8, width=64):
        super().__init__()
        self.latent = latent
        self.net = nn.Sequential(
            nn.Linear(latent, width), nn.LeakyReLU(0.2),
            nn.Linear(width, width), nn.LeakyReLU(0.2),
            nn.Linear(width, 2),
        )

    def forward(self, n):
        return self.net(torch.randn(n, self.latent))


class Discriminator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            spectral_norm(nn.Linear(2, width)), nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(width, width)), nn.LeakyReLU(0.2),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.net(x)


def ring(n):
    angle = torch.randint(0, 8, (n,)) * (3.14159 / 4)
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(n, 2)


def discriminator_loss(discriminator, real, fake):
    return (1 - discriminator(real)).relu().mean() + (1 + discriminator(fake)).relu().mean()


def build_optimizers(generator, discriminator, lr):
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=lr, betas=(0.5, 0.9))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=lr, betas=(0.5, 0.9))
    return g_optimizer, d_optimizer


def main():
    torch.manual_seed(8)
    generator, discriminator = Generator(), Discriminator()
    g_optimizer, d_optimizer = build_optimizers(generator, discriminator, lr=1e-3)
    for step in range(100):
        for _ in range(2):
            discriminator.zero_grad()
            with torch.no_grad():
                fake = generator(64)
            d_loss = discriminator_loss(discriminator, ring(64), fake)
            d_loss.backward()
            d_optimizer.step()
        generator.zero_grad()
        g_loss = -discriminator(generator(64)).mean()
        g_loss.backward()
        g_optimizer.step()
        if step % 25 == 0:
            print(f"{step}: d {d_loss.item():.3f} g {g_loss.item():.3f}")


if __name__ == "__main__":
    main()
