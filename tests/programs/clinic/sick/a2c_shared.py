"""Advantage actor-critic on a corridor with a goal at its right end."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class Corridor:
    def __init__(self, length=8):
        self.length = length
        self.position = 0
        self.time = 0

    def observe(self):
        one_hot = torch.zeros(self.length)
        one_hot[self.position] = 1.0
        return one_hot

    def reset(self):
        self.position = 0
        self.time = 0
        return self.observe()

    def step(self, action):
        self.time += 1
        self.position = max(0, min(self.length - 1, self.position + (1 if action == 1 else -1)))
        done = self.position == self.length - 1
        reward = 1.0 if done else -0.02
        return self.observe(), reward, done or self.time >= 40


class ActorCritic(nn.Module):
    def __init__(self, inputs, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh())
        self.actor = nn.Linear(hidden, 2)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, state):
        hidden = self.body(state)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


def rollout(env, model):
    log_probs, values, rewards, entropies = [], [], [], []
    state, done = env.reset(), False
    while not done:
        policy, value = model(state)
        action = policy.sample()
        state, reward, done = env.step(action.item())
        log_probs.append(policy.log_prob(action))
        values.append(value)
        rewards.append(reward)
        entropies.append(policy.entropy())
    return torch.stack(log_probs), torch.stack(values), rewards, torch.stack(entropies)


def discounted(rewards, gamma):
    total, result = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        result.append(total)
    return torch.tensor(result[::-1])


def losses(log_probs, values, returns):
    advantage = returns - values
    policy_loss = -(log_probs * advantage).mean()
    value_loss = F.mse_loss(values, returns)
    return policy_loss, value_loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()

    torch.manual_seed(1)
    env = Corridor()
    model = ActorCritic(env.length)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    lengths = []
    for episode in range(args.episodes):
        log_probs, values, rewards, entropies = rollout(env, model)
        policy_loss, value_loss = losses(log_probs, values, discounted(rewards, args.gamma))
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropies.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lengths.append(len(rewards))
        if (episode + 1) % 20 == 0:
            print(f"episode {episode + 1}: length {sum(lengths[-20:]) / 20:.1f}")


if __name__ == "__main__":
    main()
