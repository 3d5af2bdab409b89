"""Behaviour cloning with periodic evaluation rollouts."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, obs=10, act=3, hidden=48):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(obs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.1)
        )
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(0.1),
                                  nn.Linear(hidden, act))

    def forward(self, batch):
        loss = (self.head(self.encoder(batch["obs"])) - batch["action"]).abs().mean()
        return loss, {"l1": loss.item()}

    @torch.no_grad()
    def select_action(self, obs):
        return self.head(self.encoder(obs))


class Expert:
    def __init__(self, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.w = torch.randn(10, 3, generator=g)

    def act(self, obs):
        return torch.tanh(obs @ self.w)


def eval_policy(policy, expert, episodes=4, horizon=5):
    policy.eval()
    rewards = []
    for _ in range(episodes):
        obs = torch.randn(1, 10)
        total = 0.0
        for _ in range(horizon):
            action = policy.select_action(obs)
            total -= (action - expert.act(obs)).pow(2).sum().item()
            obs = obs + 0.1 * torch.randn_like(obs)
        rewards.append(total)
    return sum(rewards) / len(rewards)


def train(steps=60, eval_freq=20):
    torch.manual_seed(0)
    policy, expert = Policy(), Expert()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    policy.train()
    for step in range(1, steps + 1):
        obs = torch.randn(32, 10)
        loss, logs = policy({"obs": obs, "action": expert.act(obs)})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % eval_freq == 0:
            reward = eval_policy(policy, expert)
            print(f"step {step} l1 {logs['l1']:.4f} reward {reward:.3f}")


if __name__ == "__main__":
    train()
