"""Policy and value by two optimizers on a small bandit."""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(61)
    policy = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 3))
    value = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 1))
    policy_steps = torch.optim.Adam(policy.parameters(), lr=3e-3)
    value_steps = torch.optim.Adam(value.parameters(), lr=3e-3)
    worth = torch.randn(4, 3)
    for step in range(30):
        state = torch.randn(32, 4)
        chances = torch.distributions.Categorical(logits=policy(state))
        action = chances.sample()
        reward = (state @ worth).gather(1, action[:, None]).squeeze(1)
        guess = value(state).squeeze(1)
        log_chance = chances.log_prob(action).detach()
        policy_loss = -(log_chance * (reward - guess.detach())).mean()
        value_loss = F.mse_loss(guess, reward)
        policy_steps.zero_grad()
        value_steps.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        policy_steps.step()
        value_steps.step()
        if step % 10 == 0:
            print(step, f"{reward.mean().item():.4f}")


main()
