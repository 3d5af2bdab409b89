import torch
import torch.nn as nn

torch.manual_seed(99)
Z = 8


def mlp(inputs, outputs, width=64):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.LeakyReLU(0.2),
        nn.Linear(width, width), nn.LeakyReLU(0.2),
        nn.Linear(width, outputs),
    )


def real_samples(n):
    angle = 2 * torch.pi * torch.rand(n)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


netG = mlp(Z, 2)
netD = mlp(2, 1)
optimizerD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()

for step in range(120):
    # discriminator
    netD.zero_grad()
    real = real_samples(64)
    output = netD(real)
    errD_real = criterion(output, torch.ones_like(output))
    errD_real.backward()
    noise = torch.randn(64, Z)
    fake = netG(noise).detach()
    output = netD(fake)
    errD_fake = criterion(output, torch.zeros_like(output))
    errD_fake.backward()
    optimizerD.step()

    # generator
    netG.zero_grad()
    output = netD(fake)
    errG = criterion(output, torch.ones_like(output))
    errG.backward()
    optimizerG.step()
    if step % 30 == 0:
        print(f"{step} D {(errD_real + errD_fake).item():.3f} G {errG.item():.3f}")
