import copy

import numpy as np
import torch
from torch import nn, optim


class Actor(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(obs, 48), nn.ReLU(), nn.Linear(48, act), nn.Tanh())

    def forward(self, obs):
        return self.layers(obs)


class Critic(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(obs + act, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, obs, act):
        return self.layers(torch.cat([obs, act], dim=-1)).squeeze(-1)


class Agent:
    def __init__(self, obs=4, act=2, gamma=0.95, sync_every=10):
        self.actor = Actor(obs, act)
        self.critic = Critic(obs, act)
        self.actor_target = copy.deepcopy(self.actor)
        self.critic_target = copy.deepcopy(self.critic)
        self.actor_opt = optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = optim.Adam(self.critic.parameters(), lr=1e-3)
        self.gamma = gamma
        self.sync_every = sync_every
        self.updates = 0

    def act(self, obs, noise=0.2):
        with torch.no_grad():
            action = self.actor(obs)
        return (action + noise * torch.randn_like(action)).clamp(-1, 1)

    def update(self, obs, act, reward, following):
        with torch.no_grad():
            goal = reward + self.gamma * self.critic_target(following, self.actor_target(following))
        critic_loss = nn.functional.mse_loss(self.critic(obs, act), goal)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        actor_loss = -self.critic(obs, self.actor(obs)).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()

        self.updates += 1
        if self.updates % self.sync_every == 0:
            self.sync()
        return critic_loss.item(), actor_loss.item()

    def sync(self):
        self.actor_target = self.actor
        self.critic_target = self.critic


def rollout(agent, length, rng):
    rows = []
    obs = torch.tensor(rng.normal(size=4), dtype=torch.float32)
    for _ in range(length):
        action = agent.act(obs)
        velocity = 0.9 * obs[2:] + 0.2 * action
        following = torch.cat([obs[:2] + 0.2 * velocity, velocity])
        rows.append((obs, action, -following[:2].norm(), following))
        obs = following
    return rows


def main():
    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    agent = Agent()
    memory = []
    for episode in range(8):
        memory.extend(rollout(agent, 40, rng))
        for _ in range(12):
            index = rng.integers(len(memory), size=32)
            obs, act, reward, following = (torch.stack(x) for x in zip(*(memory[i] for i in index)))
            critic_loss, actor_loss = agent.update(obs, act, reward, following)
        print(f"episode {episode} critic {critic_loss:.3f} actor {actor_loss:.3f}")


main()
