"""A2C in a corridor: walk to the right end."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

torch.manual_seed(2)
LENGTH, GAMMA = 7, 0.95


class Corridor:
    def __init__(self, envs):
        self.position = torch.zeros(envs, dtype=torch.long)

    def observe(self):
        return F.one_hot(self.position, LENGTH).float()

    def step(self, action):
        self.position = (self.position + 2 * action - 1).clamp(0, LENGTH - 1)
        done = self.position == LENGTH - 1
        reward = done.float() - 0.01
        self.position[done] = 0
        return self.observe(), reward, done.float()


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, state):
        return Categorical(logits=self.net(state))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, state):
        return self.net(state).squeeze(-1)


env = Corridor(16)
actor, critic = Actor(), Critic()
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=5e-3)
state = env.observe()
for update in range(100):
    dist = actor(state)
    action = dist.sample()
    next_state, reward, done = env.step(action)
    with torch.no_grad():
        target = reward + GAMMA * critic(next_state) * (1 - done)
    advantage = target - critic(state)
    policy_loss = -(dist.log_prob(action) * advantage).mean()
    value_loss = advantage.pow(2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = next_state
    if update % 25 == 0:
        print(f"{update} reward {reward.mean():.3f} value loss {value_loss.item():.4f}")
