import torch
import torch.nn as nn

CONFIG = {"latent": 4, "batch": 96, "critic_iters": 4, "penalty": 10.0, "iters": 60, "seed": 381}


def net(i, o, w=48):
    return nn.Sequential(nn.Linear(i, w), nn.LeakyReLU(0.2), nn.Linear(w, w), nn.LeakyReLU(0.2), nn.Linear(w, o, bias=False))


class WGAN:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg["seed"])
        self.g = torch.Generator().manual_seed(cfg["seed"] + 1)
        self.generator, self.critic = net(cfg["latent"], 2), net(2, 1)
        self.opt_g = torch.optim.Adam(self.generator.parameters(), lr=5e-4, betas=(0.0, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=3e-3, betas=(0.0, 0.9))

    def latent(self):
        return torch.randn(self.cfg["batch"], self.cfg["latent"], generator=self.g)

    def real(self):
        n = self.cfg["batch"]
        side = torch.randint(0, 2, (n, 1), generator=self.g).float() * 2 - 1
        return torch.cat([side, 0.5 * side], 1) + 0.1 * torch.randn(n, 2, generator=self.g)

    def gradient_penalty(self, real, fake):
        mix = torch.rand(len(real), 1, generator=self.g)
        points = (mix * real + (1 - mix) * fake).requires_grad_(True)
        scores = self.critic(points)
        grads, = torch.autograd.grad(
            scores, points, grad_outputs=torch.ones_like(scores),
            retain_graph=True, create_graph=True)
        return (grads.norm(2, dim=1) - 1).pow(2).mean()

    def critic_step(self):
        real = self.real()
        with torch.no_grad():
            fake = self.generator(self.latent())
        gap = self.critic(fake).mean() - self.critic(real).mean()
        loss = gap + self.cfg["penalty"] * self.gradient_penalty(real, fake)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        return -gap.item()

    def generator_step(self):
        self.critic.requires_grad_(False)
        loss = -self.critic(self.generator(self.latent())).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        self.critic.requires_grad_(True)

    def train(self):
        for it in range(self.cfg["iters"]):
            for _ in range(self.cfg["critic_iters"]):
                gap = self.critic_step()
            self.generator_step()
            if it % 10 == 0:
                print(f"{it} wasserstein estimate {gap:.4f}")


WGAN(CONFIG).train()
