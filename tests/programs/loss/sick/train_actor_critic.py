"""Advantage actor-critic on a small chain of states."""

import torch
from torch import nn
from torch.distributions import Categorical


class Agent(nn.Module):
    def __init__(self, states=8, actions=2):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(states, 32), nn.Tanh(), nn.Linear(32, actions))
        self.critic = nn.Sequential(nn.Linear(states, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, state):
        return Categorical(logits=self.actor(state)), self.critic(state).squeeze(-1)


def rollout(agent, length=24):
    place, log_probs, values, rewards = 3, [], [], []
    for _ in range(length):
        state = nn.functional.one_hot(torch.tensor(place), 8).float()
        policy, value = agent(state)
        action = policy.sample()
        place = min(7, max(0, place + (1 if action.item() else -1)))
        log_probs.append(policy.log_prob(action))
        values.append(value)
        rewards.append(1.0 if place == 7 else -0.01)
    return torch.stack(log_probs), torch.stack(values), rewards


def discounted(rewards, gamma=0.95):
    total, found = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        found.append(total)
    return torch.tensor(found[::-1])


def main():
    torch.manual_seed(0)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
    for episode in range(12):
        log_probs, values, rewards = rollout(agent)
        returns = discounted(rewards)
        advantage = returns - values
        policy_loss = -(log_probs * advantage).mean()
        value_loss = nn.functional.mse_loss(values, returns)
        optimizer.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        optimizer.step()
        if episode % 4 == 0:
            print(episode, round(sum(rewards), 2))


if __name__ == "__main__":
    main()
