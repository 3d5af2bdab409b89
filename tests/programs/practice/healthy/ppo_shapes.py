import argparse

import torch
from torch import nn
from torch.distributions import Categorical


class ActorCritic(nn.Module):
    def __init__(self, inputs, actions, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh())
        self.actor = nn.Linear(hidden, actions)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.actor(h)), self.critic(h)


def rollout(model, length):
    obs, actions, logps, rewards, values = [], [], [], [], []
    state = torch.randn(4)
    with torch.no_grad():
        for _ in range(length):
            dist, value = model(state)
            action = dist.sample()
            reward = 1.0 if action == (state[0] > 0).long() else 0.0
            obs.append(state)
            actions.append(action)
            logps.append(dist.log_prob(action))
            rewards.append(reward)
            values.append(value)
            state = 0.8 * state + 0.6 * torch.randn(4)
    return torch.stack(obs), torch.stack(actions), torch.stack(logps), rewards, torch.stack(values)


def gae(rewards, values, gamma=0.95, lam=0.9):
    advantage, advantages = torch.zeros(1), []
    following = torch.zeros(1)
    for reward, value in zip(reversed(rewards), reversed(values)):
        advantage = reward + gamma * following - value + gamma * lam * advantage
        advantages.insert(0, advantage)
        following = value
    return torch.stack(advantages)


def update(model, optimizer, data, epochs, clip):
    obs, actions, old_logp, rewards, values = data
    advantages = gae(rewards, values)
    returns = advantages + values
    advantages = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).squeeze(-1)
    for _ in range(epochs):
        dist, value = model(obs)
        ratio = (dist.log_prob(actions) - old_logp).exp()
        unclipped = ratio * advantages
        clipped = ratio.clamp(1 - clip, 1 + clip) * advantages
        policy_loss = -torch.min(unclipped, clipped).mean()
        value_loss = (value - returns).pow(2).mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return sum(rewards) / len(rewards)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--clip", type=float, default=0.2)
    args = parser.parse_args()
    torch.manual_seed(3)
    model = ActorCritic(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for iteration in range(args.iterations):
        score = update(model, optimizer, rollout(model, 48), 4, args.clip)
        if iteration % 5 == 0:
            print(iteration, score)
