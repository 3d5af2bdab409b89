import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, bands=8, width=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(bands, width, 3, padding=1), nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(width, width, 8, stride=4, padding=2), nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(width, width, 8, stride=4, padding=2), nn.LeakyReLU(0.1),
            nn.Conv1d(width, 1, 7, padding=3),
        )

    def forward(self, bands):
        return torch.tanh(self.layers(bands))


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, width, 15, stride=4, padding=7), nn.LeakyReLU(0.1),
            nn.Conv1d(width, width, 15, stride=4, padding=7), nn.LeakyReLU(0.1),
            nn.Conv1d(width, 1, 3, padding=1),
        )

    def forward(self, wave):
        return self.layers(wave)


class VocoderTrainer:
    def __init__(self):
        self.generator, self.discriminator = Generator(), Discriminator()
        self.optim_g = torch.optim.AdamW(self.generator.parameters(), 5e-4, betas=(0.8, 0.99))
        self.optim_d = torch.optim.AdamW(self.discriminator.parameters(), 5e-4, betas=(0.8, 0.99))

    def zero_grad(self):
        self.optim_g.zero_grad()
        self.optim_d.zero_grad()

    def discriminator_loss(self, real, fake):
        return ((self.discriminator(real) - 1) ** 2).mean() + (self.discriminator(fake) ** 2).mean()

    def generator_loss(self, real, fake):
        adversarial = ((self.discriminator(fake) - 1) ** 2).mean()
        return adversarial + 2 * F.l1_loss(fake, real)

    def step(self, bands, real):
        self.zero_grad()
        fake = self.generator(bands)
        loss_d = self.discriminator_loss(real, fake)
        loss_d.backward(retain_graph=True)
        self.optim_d.step()
        self.optim_d.zero_grad()
        loss_g = self.generator_loss(real, fake)
        loss_g.backward()
        self.optim_g.step()
        return loss_g.item(), loss_d.item()


def voices(count, generator):
    pitch = 0.05 + 0.2 * torch.rand(count, 1, 1, generator=generator)
    time = torch.arange(128)
    wave = 0.6 * torch.sin(2 * math.pi * pitch * time)
    frames = wave.unfold(-1, 16, 16).squeeze(1)
    return torch.fft.rfft(frames).abs()[..., 1:9].transpose(1, 2) / 8, wave


if __name__ == "__main__":
    torch.manual_seed(0)
    data = torch.Generator().manual_seed(2)
    trainer = VocoderTrainer()
    for step in range(60):
        losses = trainer.step(*voices(8, data))
        if step % 15 == 0:
            print(step, "generator %.3f discriminator %.3f" % losses)
