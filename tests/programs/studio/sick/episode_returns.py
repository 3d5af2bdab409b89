"""Policy gradient with returns on a small grid."""

import argparse

import torch
from torch import nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * size, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, state):
        return Categorical(logits=self.net(state))


class Grid:
    moves = ((0, 1), (0, -1), (1, 0), (-1, 0))

    def __init__(self, size=4):
        self.size = size

    def reset(self):
        self.place = [0, 0]
        return self.state()

    def state(self):
        state = torch.zeros(2 * self.size)
        state[self.place[0]] = state[self.size + self.place[1]] = 1
        return state

    def step(self, action):
        for axis in range(2):
            self.place[axis] = min(max(self.place[axis] + self.moves[action][axis], 0), self.size - 1)
        done = self.place == [self.size - 1] * 2
        return self.state(), (1.0 if done else -0.05), done


def rollout(env, policy, limit=40):
    state, logps, rewards = env.reset(), [], []
    for _ in range(limit):
        choice = policy(state)
        action = choice.sample()
        logps.append(choice.log_prob(action))
        state, reward, done = env.step(int(action))
        rewards.append(reward)
        if done:
            break
    return logps, rewards


def returns(rewards, gamma):
    out, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        out.insert(0, total)
    values = torch.tensor(out)
    return (values - values.mean()) / (values.std(correction=0) + 1e-6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=80)
    parser.add_argument("--gamma", type=float, default=0.95)
    args = parser.parse_args()
    torch.manual_seed(0)
    env, policy = Grid(3), Policy(3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for episode in range(args.episodes):
        logps, rewards = rollout(env, policy)
        terms = [-logp * value for logp, value in zip(logps, returns(rewards, args.gamma), strict=True)]
        loss = torch.tensor(terms, requires_grad=True).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if episode % 10 == 0:
            print(episode, len(rewards), round(sum(rewards), 2))


if __name__ == "__main__":
    main()
