import torch
import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, c, 3, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(c, c, 3, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(c, 1, 3, padding=1), nn.Tanh(),
        )

    def forward(self, x):
        return self.net(x)


class Discriminator(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, c, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(c, 1, 4, 2, 1),
        )

    def forward(self, image, condition):
        return self.net(torch.cat([image, condition], 1))


class Translation(nn.Module):
    def __init__(self, l1_weight=10.0):
        super().__init__()
        self.g, self.d = Generator(), Discriminator()
        self.l1_weight = l1_weight
        self.mse, self.l1 = nn.MSELoss(), nn.L1Loss()

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.g.parameters(), 2e-3, betas=(0.5, 0.999)),
            torch.optim.Adam(self.d.parameters(), 1e-3, betas=(0.5, 0.999)),
        )

    def training_step(self, batch, optimizer_idx):
        source, real = batch
        fake = self.g(source)
        if optimizer_idx == 0:
            score = self.d(fake.detach(), source)
            adversarial = self.mse(score, torch.ones_like(score))
            return adversarial + self.l1_weight * self.l1(fake, real)
        good = self.d(real, source)
        bad = self.d(fake.detach(), source)
        return 0.5 * (self.mse(good, torch.ones_like(good)) + self.mse(bad, torch.zeros_like(bad)))


def stream(count):
    for _ in range(count):
        x = torch.rand(8, 1, 16, 16) * 2 - 1
        y = torch.roll(x, 1, -1) * 0.8
        yield x, y


def fit(module, loader):
    optimizers = module.configure_optimizers()
    for i, batch in enumerate(loader):
        for index, optimizer in enumerate(optimizers):
            loss = module.training_step(batch, index)
            module.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 20 == 0:
                print(i, "gd"[index], round(loss.item(), 3))


torch.manual_seed(2)
fit(Translation(), stream(60))
