"""Clipped policy optimisation for a continuous bandit with observations."""

import torch
from torch import nn
from torch.distributions import Normal


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.mean = nn.Linear(32, 2)
        self.value = nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def forward(self, observation):
        hidden = self.trunk(observation)
        return Normal(self.mean(hidden), self.log_std.exp()), self.value(hidden).squeeze(-1)


def reward_of(observation, action):
    return -((action - observation[:, :2]) ** 2).sum(1)


def collect(policy, count=128):
    with torch.no_grad():
        observation = torch.randn(count, 4)
        distribution, _ = policy(observation)
        action = distribution.sample()
        log_prob = distribution.log_prob(action).sum(-1)
    return observation, action, log_prob, reward_of(observation, action)


def update(policy, optimizer, batch, clip=0.2):
    observation, action, old_log_prob, reward = batch
    distribution, value = policy(observation)
    ratio = (distribution.log_prob(action).sum(-1) - old_log_prob).exp()
    advantage = reward - value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
    value_loss = (value - reward).pow(2).mean()
    loss = 0.5 * value_loss - surrogate - 0.01 * distribution.entropy().sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for iteration in range(6):
        batch = collect(policy)
        losses = [update(policy, optimizer, batch) for _ in range(4)]
        print(iteration, round(losses[-1], 3), round(batch[-1].mean().item(), 3))


if __name__ == "__main__":
    main()
