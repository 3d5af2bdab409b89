"""Advantage actor-critic on a contextual bandit."""

import argparse

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F


class Agent(nn.Module):
    def __init__(self, state, actions, width=32):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(state, width), nn.Tanh(), nn.Linear(width, actions))
        self.critic = nn.Sequential(nn.Linear(state, width), nn.Tanh(), nn.Linear(width, 1))

    def act(self, state):
        policy = Categorical(logits=self.actor(state))
        action = policy.sample()
        return action, policy.log_prob(action), policy.entropy()

    def value(self, state):
        return self.critic(state).squeeze(-1)


class Bandit:
    def __init__(self, state=6, actions=4):
        self.weights = torch.randn(state, actions)

    def contexts(self, n):
        return torch.randn(n, self.weights.shape[0])

    def reward(self, state, action):
        means = state @ self.weights
        return means.gather(1, action[:, None]).squeeze(1) + 0.1 * torch.randn(len(state))


def update(agent, optimizer, bandit, args):
    state = bandit.contexts(args.batch)
    action, log_prob, entropy = agent.act(state)
    reward = bandit.reward(state, action)
    value = agent.value(state)
    advantage = reward - value
    policy_loss = -(log_prob * advantage).mean()
    value_loss = F.mse_loss(value, reward)
    loss = policy_loss + 0.5 * value_loss - args.entropy * entropy.mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
    optimizer.step()
    return reward.mean().item(), value_loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--entropy", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(0)
    bandit, agent = Bandit(), Agent(6, 4)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
    for i in range(args.updates):
        reward, error = update(agent, optimizer, bandit, args)
        if i % 25 == 0:
            print(f"update {i} reward {reward:.3f} value error {error:.3f}")


if __name__ == "__main__":
    main()
