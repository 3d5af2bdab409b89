import random

import torch
import torch.nn as nn
from torch.distributions import Bernoulli


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 24)
        self.fc2 = nn.Linear(24, 1)

    def forward(self, state):
        return self.fc2(torch.tanh(self.fc1(state))).squeeze(-1)


class Game:
    """Draw cards, stop before the total passes 21."""

    def reset(self):
        self.total, self.turn = random.randint(2, 10), 0
        return self.state()

    def state(self):
        return torch.tensor([self.total / 21.0, self.turn / 5.0])

    def step(self, draw):
        if not draw:
            return self.state(), self.total / 21.0, True
        self.total += random.randint(1, 10)
        self.turn += 1
        if self.total > 21:
            return self.state(), -1.0, True
        return self.state(), 0.0, False


def episode(policy, game):
    state, log_probs, reward, done = game.reset(), [], 0.0, False
    while not done:
        dist = Bernoulli(logits=policy(state))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        state, reward, done = game.step(bool(action))
    return log_probs, reward


def train(updates=60, episodes=24):
    random.seed(351)
    torch.manual_seed(351)
    policy, game = Policy(), Game()
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-2)
    for update in range(updates):
        log_probs, returns = [], []
        for _ in range(episodes):
            lp, reward = episode(policy, game)
            log_probs += lp
            returns += [reward] * len(lp)
        returns = torch.tensor(returns)
        advantage = (returns - returns.mean()) / (returns.std() + 1e-6)
        log_probs = torch.stack(log_probs)
        loss = -(log_probs * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 10 == 0:
            print(f"update {update} mean return {returns.mean().item():+.3f}")


train()
