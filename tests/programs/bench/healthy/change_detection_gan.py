"""Change detection with a conditional adversarial loss."""

import torch
from torch import nn

torch.manual_seed(31)


def conv_block(c_in, c_out):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1), nn.LeakyReLU(0.2))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv_block(2, 12), conv_block(12, 12))
        self.out = nn.Conv2d(12, 1, 1)

    def forward(self, before, after):
        return torch.sigmoid(self.out(self.body(torch.cat([before, after], dim=1))))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv_block(3, 12), nn.AvgPool2d(2), conv_block(12, 12))
        self.fc = nn.Linear(12, 1)

    def forward(self, before, after, change):
        return self.fc(self.body(torch.cat([before, after, change], dim=1)).mean(dim=(2, 3)))


def sample(n=8):
    before = torch.rand(n, 1, 12, 12)
    change = torch.zeros(n, 1, 12, 12)
    for m in change:
        r, c = torch.randint(0, 7, (2,)).tolist()
        m[0, r : r + 5, c : c + 5] = 1
    return before, (before * (1 - change) + (1 - before) * change), change


net_g, net_d = Generator(), Discriminator()
opt_g = torch.optim.Adam(net_g.parameters(), lr=2e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(net_d.parameters(), lr=1e-3, betas=(0.5, 0.999))
bce_logits, bce = nn.BCEWithLogitsLoss(), nn.BCELoss()

for it in range(30):
    before, after, label = sample()
    fake = net_g(before, after)

    # discriminator
    pred_real = net_d(before, after, label)
    pred_fake = net_d(before, after, fake.detach())
    loss_d = bce_logits(pred_real, torch.ones_like(pred_real))
    loss_d = loss_d + bce_logits(pred_fake, torch.zeros_like(pred_fake))
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

    # generator
    pred_fake = net_d(before, after, fake)
    loss_adv = bce_logits(pred_fake, torch.ones_like(pred_fake))
    loss_pix = bce(fake, label)
    loss_g = loss_pix + 0.2 * loss_adv
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if it % 10 == 0:
        print(f"{it}: d {loss_d.item():.3f} pix {loss_pix.item():.3f} adv {loss_adv.item():.3f}")
