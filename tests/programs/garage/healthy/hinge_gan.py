import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm


class Generator(nn.Module):
    def __init__(self, latent=16, width=32):
        super().__init__()
        self.fc = nn.Linear(latent, width * 9)
        self.up1 = nn.ConvTranspose2d(width, width // 2, 4, stride=2, padding=1)
        self.norm1 = nn.BatchNorm2d(width // 2)
        self.up2 = nn.ConvTranspose2d(width // 2, 1, 4, stride=2, padding=1)

    def forward(self, z):
        x = F.relu(self.fc(z)).unflatten(1, (-1, 3, 3))
        return torch.tanh(self.up2(F.relu(self.norm1(self.up1(x)))))


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            spectral_norm(nn.Conv2d(1, width, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            spectral_norm(nn.Conv2d(width, 2 * width, 4, 2, 1)),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            spectral_norm(nn.Linear(2 * width * 9, 1)),
        )

    def forward(self, x):
        return self.layers(x).squeeze(1)


def crosses(count):
    images = -torch.ones(count, 1, 12, 12)
    for i in range(count):
        row, column = torch.randint(3, 9, (2,)).tolist()
        images[i, 0, row] = 1.0
        images[i, 0, :, column] = 1.0
    return images + 0.05 * torch.randn_like(images)


def requires_grad(model, flag):
    for p in model.parameters():
        p.requires_grad_(flag)


def train(iterations=20, batch=32, critic_steps=2):
    torch.manual_seed(43)
    g, d = Generator(), Discriminator()
    g_opt = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.0, 0.9))
    d_opt = torch.optim.Adam(d.parameters(), lr=4e-4, betas=(0.0, 0.9))
    for i in range(iterations):
        requires_grad(d, True)
        requires_grad(g, False)
        for _ in range(critic_steps):
            fake = g(torch.randn(batch, 16))
            d_loss = F.relu(1 - d(crosses(batch))).mean() + F.relu(1 + d(fake)).mean()
            d_opt.zero_grad()
            d_loss.backward()
            d_opt.step()
        requires_grad(d, False)
        requires_grad(g, True)
        g_loss = -d(g(torch.randn(batch, 16))).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        if i % 5 == 0:
            print(f"{i} d {d_loss.item():.3f} g {g_loss.item():.3f}")


if __name__ == "__main__":
    train()
