import argparse

import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 24)
        self.fc2 = nn.Linear(24, 2)

    def forward(self, x):
        return Categorical(logits=self.fc2(torch.relu(self.fc1(x))))


def run_episode(policy, length=20):
    log_probs, rewards = [], []
    state = torch.randn(4)
    for _ in range(length):
        dist = policy(state)
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        rewards.append(float(action == (state.sum() > 0)))
        state = 0.5 * state + torch.randn(4)
    return log_probs, rewards


def discounted(rewards, gamma):
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    return (returns - returns.mean()) / (returns.std() + 1e-8)


def finish_episode(optimizer, log_probs, rewards, gamma):
    returns = discounted(rewards, gamma)
    log_probs = torch.stack(log_probs)
    loss = -(log_probs * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return sum(rewards)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gamma", type=float, default=0.6)
    parser.add_argument("--episodes", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(543)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for episode in range(args.episodes):
        score = finish_episode(optimizer, *run_episode(policy), args.gamma)
        if episode % 10 == 0:
            print(episode, score)


if __name__ == "__main__":
    main()
