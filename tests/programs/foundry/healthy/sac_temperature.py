"""Soft actor-critic with a learned temperature on a one-step target task."""
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal


class SquashedActor(nn.Module):
    def __init__(self, obs, act, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, width), nn.ReLU())
        self.mu, self.log_std = nn.Linear(width, act), nn.Linear(width, act)

    def forward(self, obs):
        h = self.body(obs)
        dist = Normal(self.mu(h), self.log_std(h).clamp(-4, 1).exp())
        u = dist.rsample()
        a = torch.tanh(u)
        logp = (dist.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)).sum(-1)
        return a, logp


class TwinQ(nn.Module):
    def __init__(self, obs, act, width=32):
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(obs + act, width), nn.ReLU(), nn.Linear(width, 1))
        self.q1, self.q2 = make(), make()

    def forward(self, obs, act):
        x = torch.cat([obs, act], -1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class SAC:
    def __init__(self, obs=3, act=2, gamma=0.9):
        self.actor, self.q = SquashedActor(obs, act), TwinQ(obs, act)
        self.q_target = copy.deepcopy(self.q).requires_grad_(False)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.alpha = self.log_alpha.exp()
        self.target_entropy = -float(act)
        self.gamma = gamma
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.q_opt = torch.optim.Adam(self.q.parameters(), lr=1e-3)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=1e-3)

    def update(self, obs, act, reward, nxt):
        with torch.no_grad():
            a2, logp2 = self.actor(nxt)
            backup = reward + self.gamma * (torch.min(*self.q_target(nxt, a2)) - self.alpha * logp2)
        q1, q2 = self.q(obs, act)
        q_loss = F.mse_loss(q1, backup) + F.mse_loss(q2, backup)
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()

        a, logp = self.actor(obs)
        actor_loss = (self.alpha * logp - torch.min(*self.q(obs, a))).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()

        alpha_loss = -(self.log_alpha * (logp + self.target_entropy).detach()).mean()
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()
        self.alpha = self.log_alpha.exp()
        with torch.no_grad():
            for t, p in zip(self.q_target.parameters(), self.q.parameters()):
                t.lerp_(p, 0.01)
        return q_loss.item(), actor_loss.item()


def main():
    torch.manual_seed(111)
    agent = SAC()
    for it in range(12):
        obs = torch.randn(48, 3)
        with torch.no_grad():
            act, _ = agent.actor(obs)
        reward = -(act - obs[:, :2].tanh()).pow(2).sum(-1)
        q, pi = agent.update(obs, act, reward, torch.randn(48, 3))
        if it % 4 == 0:
            print(f"{it:2d} q {q:.3f} pi {pi:.3f}")


if __name__ == "__main__":
    main()
