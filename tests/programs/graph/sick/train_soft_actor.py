"""Entropy-regularised actor and critic for a continuous bandit."""

import torch
from torch import nn
from torch.distributions import Normal


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.ReLU())
        self.mean, self.log_std = nn.Linear(32, 2), nn.Linear(32, 2)

    def forward(self, observation):
        hidden = self.body(observation)
        distribution = Normal(self.mean(hidden), self.log_std(hidden).clamp(-4, 1).exp())
        raw = distribution.sample()
        action = torch.tanh(raw)
        log_prob = distribution.log_prob(raw) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(1, keepdim=True)


def main():
    torch.manual_seed(0)
    actor = Actor()
    critic = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3)
    for step in range(40):
        observation = torch.randn(64, 4)
        with torch.no_grad():
            action, _ = actor(observation)
            reward = -(action - 0.5 * observation[:, :2]).pow(2).sum(1, keepdim=True)
        value = critic(torch.cat([observation, action], dim=1))
        critic_loss = nn.functional.mse_loss(value, reward)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()

        action, log_prob = actor(observation)
        value = critic(torch.cat([observation, action], dim=1))
        actor_loss = (0.1 * log_prob - value).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        if step % 10 == 0:
            print(step, round(critic_loss.item(), 3), round(reward.mean().item(), 3))


if __name__ == "__main__":
    main()
