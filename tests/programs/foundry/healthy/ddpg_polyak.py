"""DDPG on a point mass that should come to rest in the middle."""
import copy
from collections import deque

import numpy as np
import torch
from torch import nn

TAU, GAMMA = 0.005, 0.95


class Buffer:
    def __init__(self, size):
        self.rows = deque(maxlen=size)

    def push(self, *row):
        self.rows.append(row)

    def sample(self, n, rng):
        index = rng.integers(0, len(self.rows), n)
        columns = zip(*(self.rows[i] for i in index))
        return [torch.as_tensor(np.array(c), dtype=torch.float32) for c in columns]


def simulate(state, action):
    x, v = state
    v = 0.9 * v + 0.2 * float(action)
    x = np.clip(x + 0.2 * v, -2, 2)
    return np.array([x, v]), -(x**2 + 0.1 * v**2)


def make_actor():
    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1), nn.Tanh())


def make_critic():
    return nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))


def soft_update(target, source, tau):
    with torch.no_grad():
        for t, s in zip(target.parameters(), source.parameters()):
            t.copy_((1.0 - tau) * t + tau * s)


def main():
    torch.manual_seed(112)
    rng = np.random.default_rng(12)
    actor, critic = make_actor(), make_critic()
    actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
    actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_opt = torch.optim.Adam(critic.parameters(), lr=2e-3)
    buffer, state = Buffer(2000), rng.uniform(-1, 1, 2)
    for it in range(160):
        with torch.no_grad():
            action = actor(torch.as_tensor(state, dtype=torch.float32)).numpy()
        action = np.clip(action + 0.3 * rng.normal(size=1), -1, 1)
        following, reward = simulate(state, action[0])
        buffer.push(state, action, [reward], following)
        state = following if it % 40 else rng.uniform(-1, 1, 2)
        if it < 100:
            continue
        s, a, r, s2 = buffer.sample(64, rng)
        with torch.no_grad():
            y = r + GAMMA * critic_target(torch.cat([s2, actor_target(s2)], 1))
        critic_loss = (critic(torch.cat([s, a], 1)) - y).pow(2).mean()
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()
        actor_loss = -critic(torch.cat([s, actor(s)], 1)).mean()
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()
        soft_update(critic_target, critic, TAU)
        soft_update(actor_target, actor, TAU)
        if it % 20 == 0:
            print(f"{it} critic {critic_loss.item():.4f} actor {actor_loss.item():.4f}")


if __name__ == "__main__":
    main()
