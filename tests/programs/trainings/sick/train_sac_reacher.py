import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class GaussianActor(nn.Module):
    def __init__(self, obs=2, act=1):
        super().__init__()
        self.trunk = mlp([obs, 48, 2 * act])

    def forward(self, obs):
        mu, log_std = self.trunk(obs).chunk(2, dim=-1)
        dist = Normal(mu, log_std.clamp(-4, 1).exp())
        raw = dist.sample()
        act = torch.tanh(raw)
        logp = dist.log_prob(raw) - torch.log(1 - act.pow(2) + 1e-6)
        return act, logp.sum(-1, keepdim=True)


class SAC:
    def __init__(self, alpha=0.05, gamma=0.9, tau=0.05):
        self.actor = GaussianActor()
        self.q1, self.q2 = mlp([3, 48, 1]), mlp([3, 48, 1])
        self.q1_t, self.q2_t = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        for p in [*self.q1_t.parameters(), *self.q2_t.parameters()]:
            p.requires_grad_(False)
        self.pi_opt = torch.optim.Adam(self.actor.parameters(), lr=3e-3)
        self.q_opt = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=5e-3)
        self.alpha, self.gamma, self.tau = alpha, gamma, tau

    def critic_step(self, o, a, r, n):
        with torch.no_grad():
            na, nlogp = self.actor(n)
            nx = torch.cat([n, na], -1)
            y = r + self.gamma * (torch.min(self.q1_t(nx), self.q2_t(nx)) - self.alpha * nlogp)
        x = torch.cat([o, a], -1)
        loss = F.mse_loss(self.q1(x), y) + F.mse_loss(self.q2(x), y)
        self.q_opt.zero_grad(); loss.backward(); self.q_opt.step()
        return loss.item()

    def actor_step(self, o):
        for p in [*self.q1.parameters(), *self.q2.parameters()]:
            p.requires_grad_(False)
        a, logp = self.actor(o)
        x = torch.cat([o, a], -1)
        loss = (self.alpha * logp - torch.min(self.q1(x), self.q2(x))).mean()
        self.pi_opt.zero_grad(); loss.backward(); self.pi_opt.step()
        for p in [*self.q1.parameters(), *self.q2.parameters()]:
            p.requires_grad_(True)
        return loss.item()

    @torch.no_grad()
    def polyak(self):
        for net, tgt in ((self.q1, self.q1_t), (self.q2, self.q2_t)):
            for p, t in zip(net.parameters(), tgt.parameters()):
                t.lerp_(p, self.tau)


def dynamics(o, a):
    pos = (o[:, :1] + 0.3 * a).clamp(-1, 1)
    nxt = torch.cat([pos, o[:, 1:]], -1)
    return nxt, 1 - (pos - o[:, 1:]).abs()


def main():
    torch.manual_seed(91)
    agent = SAC()
    for it in range(150):
        o = torch.rand(128, 2) * 2 - 1
        with torch.no_grad():
            a, _ = agent.actor(o)
        n, r = dynamics(o, a)
        ql = agent.critic_step(o, a, r, n)
        pl = agent.actor_step(o)
        agent.polyak()
        if it % 25 == 0:
            print(f"{it:3d} reward {r.mean().item():.3f} q {ql:.4f} pi {pl:.4f}")


main()
