import torch
import torch.nn as nn
import torch.nn.functional as F

options = {"channels": 16, "weights": {"pixel": 1.0, "edge": 0.1, "gan": 0.02}, "iterations": 50, "lr": 1e-3}


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, 1, 1), nn.Conv2d(c, c, 3, 1, 1)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


class SRNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.first = nn.Conv2d(1, c, 3, 1, 1)
        self.body = nn.Sequential(*[Residual(c) for _ in range(3)])
        self.up = nn.Conv2d(c, 4, 3, 1, 1)

    def forward(self, x):
        return F.pixel_shuffle(self.up(self.body(self.first(x))), 2)


class Critic(nn.Sequential):
    def __init__(self, c):
        super().__init__(nn.Conv2d(1, c, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(c, c, 4, 2, 1), nn.LeakyReLU(0.2),
                         nn.Flatten(), nn.Linear(c * 16, 1))


def edges(x):
    return torch.cat([x[..., 1:, 1:] - x[..., 1:, :-1], x[..., 1:, 1:] - x[..., :-1, 1:]], 1)


class SRModel:
    def __init__(self, opt):
        self.opt = opt
        self.net_g, self.net_d = SRNet(opt["channels"]), Critic(opt["channels"])
        self.optimizer_g = torch.optim.Adam(self.net_g.parameters(), lr=opt["lr"])
        self.optimizer_d = torch.optim.Adam(self.net_d.parameters(), lr=opt["lr"])
        self.log = {}

    def optimize_g(self, low, high):
        weights = self.opt["weights"]
        for p in self.net_d.parameters():
            p.requires_grad = False
        self.optimizer_g.zero_grad()
        self.output = self.net_g(low)
        loss_pixel = F.l1_loss(self.output, high)
        loss_edge = F.l1_loss(edges(self.output), edges(high))
        loss_gan = F.softplus(-self.net_d(self.output)).mean().item()
        self.log["gan"] = loss_gan
        total = weights["pixel"] * loss_pixel + weights["edge"] * loss_edge + weights["gan"] * loss_gan
        total.backward()
        self.optimizer_g.step()
        self.log["total"] = total.item()

    def optimize_d(self, high):
        for p in self.net_d.parameters():
            p.requires_grad = True
        self.optimizer_d.zero_grad()
        loss = F.softplus(-self.net_d(high)).mean() + F.softplus(self.net_d(self.output.detach())).mean()
        loss.backward()
        self.optimizer_d.step()


torch.manual_seed(4)
model = SRModel(options)
for i in range(options["iterations"]):
    high = F.avg_pool2d(torch.rand(6, 1, 18, 18), 3, 1)
    low = F.avg_pool2d(high, 2)
    model.optimize_g(low, high)
    model.optimize_d(high)
    if i % 10 == 0:
        print(i, {k: round(v, 4) for k, v in model.log.items()})
