"""REINFORCE with a learned baseline on a contextual bandit."""

from collections import deque

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class ContextualBandit:
    def __init__(self, contexts=6, arms=5, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.preference = torch.randn(contexts, arms, generator=generator)

    def contexts(self, count):
        return torch.randn(count, len(self.preference))

    def reward(self, contexts, arms):
        mean = (contexts @ self.preference).gather(1, arms[:, None]).squeeze(1)
        return torch.tanh(mean) + 0.1 * torch.randn_like(mean)


class Policy(nn.Module):
    def __init__(self, contexts, arms, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(contexts, hidden), nn.Tanh())
        self.arms = nn.Linear(hidden, arms)
        self.baseline = nn.Linear(hidden, 1)

    def forward(self, contexts):
        hidden = self.body(contexts)
        return Categorical(logits=self.arms(hidden)), self.baseline(hidden).squeeze(-1)


class Reinforce:
    def __init__(self, policy, entropy=0.01):
        self.policy, self.entropy = policy, entropy
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)

    def update(self, bandit):
        contexts = bandit.contexts(64)
        distribution, baseline = self.policy(contexts)
        arms = distribution.sample()
        rewards = bandit.reward(contexts, arms)
        advantage = (rewards - baseline).detach()
        surrogate = (distribution.log_prob(arms) * advantage).mean()
        bonus = self.entropy * distribution.entropy().mean()
        loss = -surrogate - bonus + 0.5 * F.mse_loss(baseline, rewards)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return rewards.mean().item()


def main():
    torch.manual_seed(0)
    bandit = ContextualBandit()
    learner = Reinforce(Policy(6, 5))
    recent = deque(maxlen=10)
    for _ in range(60):
        recent.append(learner.update(bandit))
    print(f"{sum(recent) / len(recent):.3f}")


if __name__ == "__main__":
    main()
