import torch
from torch import nn


class WGAN:
    def __init__(self):
        self.gen = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 2))
        self.critic = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 1))
        self.opt_gen = torch.optim.RMSprop(self.gen.parameters(), lr=1e-3)
        self.opt_critic = torch.optim.RMSprop(self.critic.parameters(), lr=1e-3)

    def critic_step(self, real):
        self.opt_critic.zero_grad()
        fake = self.gen(torch.randn(len(real), 3)).detach()
        loss = self.critic(fake).mean() - self.critic(real).mean()
        loss.backward()
        self.opt_critic.step()
        for p in self.critic.parameters():
            p.data.clamp_(-0.1, 0.1)
        return loss.item()

    def gen_step(self, n):
        self.opt_gen.zero_grad()
        loss = -self.critic(self.gen(torch.randn(n, 3))).mean()
        loss.backward()
        self.opt_gen.step()
        return loss.item()


torch.manual_seed(26)
gan = WGAN()
for it in range(60):
    for _ in range(3):
        c = gan.critic_step(torch.randn(48, 2) + 2)
    g = gan.gen_step(48)
    if it % 15 == 14:
        print(it, round(c, 4), round(g, 4))
