import torch
import torch.nn.functional as F
from torch import nn


class Generator(nn.Module):
    def __init__(self, cond=8, bands=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(cond + 4, 64), nn.LeakyReLU(0.2), nn.Linear(64, bands))

    def forward(self, f):
        return self.net(torch.cat([f, torch.randn(len(f), 4)], 1))


class Discriminator(nn.Module):
    def __init__(self, cond=8, bands=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(cond + bands, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def forward(self, spec, f):
        return self.net(torch.cat([spec, f], 1))


class Image2Reverb:
    def __init__(self, l1=10.0):
        self.g, self.d = Generator(), Discriminator()
        self.opt_g = torch.optim.Adam(self.g.parameters(), lr=2e-3, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.d.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.l1 = l1

    def training_step(self, spec, f):
        fake = self.g(f)

        real_score = self.d(spec, f)
        fake_score = self.d(fake.detach(), f)
        d_loss = (F.mse_loss(real_score, torch.ones_like(real_score)) + F.mse_loss(fake_score, torch.zeros_like(fake_score))) / 2
        self.opt_d.zero_grad()
        d_loss.backward()
        self.opt_d.step()

        score = self.d(fake.detach(), f)
        adversarial = F.mse_loss(score, torch.ones_like(score))
        g_loss = adversarial + self.l1 * F.l1_loss(fake, spec)
        self.opt_g.zero_grad()
        g_loss.backward()
        self.opt_g.step()
        return {"d": d_loss.item(), "adv": adversarial.item(), "g": g_loss.item()}


def main(steps=150):
    torch.manual_seed(13)
    mixing = torch.randn(8, 24) * 0.3
    model = Image2Reverb()
    for step in range(steps):
        f = torch.randn(32, 8)
        logs = model.training_step(torch.tanh(f @ mixing) + 0.05 * torch.randn(32, 24), f)
        if step % 30 == 0:
            print(step, {k: round(v, 3) for k, v in logs.items()})


if __name__ == "__main__":
    main()
