import argparse
import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn


class Corridor:
    """Walk right to the end of a corridor of cells."""

    def __init__(self, length=8):
        self.length = length
        self.position = 0

    def reset(self):
        self.position = random.randrange(self.length - 1)
        return self.observe()

    def observe(self):
        state = torch.zeros(self.length)
        state[self.position] = 1.0
        return state

    def step(self, action):
        self.position = max(0, min(self.length - 1, self.position + (1 if action == 1 else -1)))
        done = self.position == self.length - 1
        return self.observe(), (1.0 if done else -0.01), done


class QNetwork(nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, actions)

    def forward(self, x):
        return self.head(self.body(x))


def soft_update(source, destination, tau):
    with torch.no_grad():
        for p, q in zip(source.parameters(), destination.parameters()):
            q.mul_(1.0 - tau).add_(p, alpha=tau)


def sample(memory, size):
    rows = random.sample(list(memory), size)
    states, actions, rewards, following, dones = zip(*rows)
    return (
        torch.stack(states),
        torch.tensor(actions),
        torch.tensor(rewards),
        torch.stack(following),
        torch.tensor(dones, dtype=torch.float32),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--tau", type=float, default=0.02)
    args = parser.parse_args()
    random.seed(3)
    torch.manual_seed(3)
    env = Corridor()
    online = QNetwork(env.length, 2)
    target = QNetwork(env.length, 2)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=2e-3)
    memory = deque(maxlen=2000)
    state = env.reset()
    for step in range(args.steps):
        epsilon = max(0.1, 1.0 - step / 100)
        if random.random() < epsilon:
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = int(online(state).argmax())
        following, reward, done = env.step(action)
        memory.append((state, action, reward, following, done))
        state = env.reset() if done else following
        if len(memory) < 32:
            continue
        states, actions, rewards, nexts, dones = sample(memory, 32)
        q = online(states).gather(1, actions[:, None]).squeeze(1)
        with torch.no_grad():
            goal = rewards + args.gamma * (1 - dones) * target(nexts).amax(dim=1)
        loss = F.smooth_l1_loss(q, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        soft_update(online, target, args.tau)
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
