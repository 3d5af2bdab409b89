"""DDPG-like control of a noisy integrator."""
import copy
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class HParams:
    seed: int = 101
    gamma: float = 0.8
    tau: float = 0.05
    actor_lr: float = 1e-3
    critic_lr: float = 3e-3
    max_norm: float = 3.0
    iters: int = 180


class DDPG:
    def __init__(self, hp):
        self.hp = hp
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
        self.actor_target = copy.deepcopy(self.actor).requires_grad_(False)
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=hp.actor_lr)
        self.critic_opt = torch.optim.SGD(self.critic.parameters(), lr=hp.critic_lr, momentum=0.9)

    def update_critic(self, s, a, r, s2):
        with torch.no_grad():
            y = r + self.hp.gamma * self.critic_target(torch.cat([s2, self.actor_target(s2)], 1))
        critic_loss = nn.functional.mse_loss(self.critic(torch.cat([s, a], 1)), y)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        nn.utils.clip_grad_norm_(self.critic.parameters(), self.hp.max_norm)
        self.critic_opt.step()
        return critic_loss.item()

    def update_actor(self, s):
        actor_loss = -self.critic(torch.cat([s, self.actor(s)], 1)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        nn.utils.clip_grad_norm_(self.actor.parameters(), self.hp.max_norm)
        self.actor_opt.step()
        return actor_loss.item()

    @torch.no_grad()
    def soft_update(self):
        for net, tgt in ((self.actor, self.actor_target), (self.critic, self.critic_target)):
            for p, q in zip(net.parameters(), tgt.parameters()):
                q.mul_(1 - self.hp.tau).add_(p, alpha=self.hp.tau)


def transition(s, a, g):
    drift = 0.1 * torch.randn(s.shape, generator=g)
    s2 = (0.9 * s + 0.5 * a * torch.tensor([1.0, 0.5, -0.5]) + drift).clamp(-3, 3)
    crash = (s2.abs().amax(1, keepdim=True) > 2.2).float()
    return s2, 3 - s2.pow(2).sum(1, keepdim=True) - 6 * crash


def main():
    hp = HParams()
    torch.manual_seed(hp.seed)
    g = torch.Generator().manual_seed(hp.seed + 1)
    agent = DDPG(hp)
    for it in range(hp.iters):
        s = torch.randn(64, 3, generator=g)
        with torch.no_grad():
            a = (agent.actor(s) + 0.2 * torch.randn(64, 1, generator=g)).clamp(-1, 1)
        s2, r = transition(s, a, g)
        c = agent.update_critic(s, a, r, s2)
        p = agent.update_actor(s)
        agent.soft_update()
        if it % 20 == 0:
            print(it, f"critic {c:.3f} actor {p:.3f} reward {r.mean().item():.3f}")


if __name__ == "__main__":
    main()
