"""Soft actor-critic on a one-step continuous task."""

import argparse
import copy
import itertools
import math

import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(3, 2)

    def forward(self, state):
        mean, log_std = self.net(state).chunk(2, 1)
        policy = Normal(mean, log_std.clamp(-4, 1).exp())
        raw = policy.rsample()
        log_prob = policy.log_prob(raw) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return torch.tanh(raw), log_prob.sum(1)


class SoftActorCritic:
    def __init__(self, lr, tau):
        self.actor, self.critics = Actor(), nn.ModuleList([mlp(4, 1), mlp(4, 1)])
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.tensor(-1.0, requires_grad=True)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self.critic_opt = torch.optim.Adam(itertools.chain(*(c.parameters() for c in self.critics)), lr=lr)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=lr)
        self.tau = tau

    def values(self, critics, state, action):
        both = torch.cat([state, action], 1)
        return torch.stack([c(both).squeeze(1) for c in critics])

    def update(self, state, action, reward, after):
        with torch.no_grad():
            following, log_prob = self.actor(after)
            value = self.values(self.targets, after, following).min(0).values
            goal = reward + 0.5 * (value - self.log_alpha.exp() * log_prob)
        critic_loss = (self.values(self.critics, state, action) - goal).pow(2).mean()
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        self.critics.requires_grad_(False)
        chosen, log_prob = self.actor(state)
        actor_loss = (self.log_alpha.exp().detach() * log_prob - self.values(self.critics, state, chosen).min(0).values).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        self.critics.requires_grad_(True)
        alpha_loss = -(self.log_alpha * (log_prob.detach() - 1.0)).mean()
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()
        with torch.no_grad():
            for slow, fast in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                slow.lerp_(fast, self.tau)
        return critic_loss.item(), self.log_alpha.exp().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    agent = SoftActorCritic(lr=3e-3, tau=0.01)
    for i in range(args.updates):
        state, action = torch.randn(64, 3), 2 * torch.rand(64, 1) - 1
        reward = -(action[:, 0] - torch.tanh(state[:, 0])).pow(2)
        losses = agent.update(state, action, reward, torch.randn(64, 3))
        if i % 20 == 0:
            print(i, losses)


if __name__ == "__main__":
    main()
