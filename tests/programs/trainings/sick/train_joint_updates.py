import copy

import torch
import torch.nn as nn


def head(i, o, *tail):
    return nn.Sequential(nn.Linear(i, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, o), *tail)


class Agent:
    def __init__(self):
        self.actor, self.critic = head(3, 1, nn.Tanh()), head(4, 1)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=5e-4)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-2)

    def q(self, net, s, a):
        return net(torch.cat([s, a], dim=1))

    def update(self, s, a, r, s2):
        with torch.no_grad():
            y = r + 0.5 * self.q(self.target, s2, self.actor(s2))
        critic_loss = (self.q(self.critic, s, a) - y).pow(2).mean()
        actor_loss = -self.q(self.critic, s, self.actor(s)).mean()
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        with torch.no_grad():
            for t, p in zip(self.target.parameters(), self.critic.parameters()):
                t.lerp_(p, 0.02)
        return critic_loss.item(), actor_loss.item()


def main():
    torch.manual_seed(401)
    agent = Agent()
    for k in range(150):
        s = torch.randn(64, 3)
        with torch.no_grad():
            a = (agent.actor(s) + 0.3 * torch.randn(64, 1)).clamp(-1, 1)
        r = 1 - (a - torch.tanh(s[:, :1])).pow(2)
        s2 = 0.8 * s + 0.1 * torch.randn(64, 3)
        c, p = agent.update(s, a, r, s2)
        if k % 20 == 0:
            print(f"{k} critic {c:.4f} actor {p:.4f} reward {r.mean().item():.3f}")


main()
