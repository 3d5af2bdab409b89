import random
from collections import deque

import torch
import torch.nn as nn


class QNetwork(nn.Module):
    def __init__(self, states, actions, hidden=64):
        super().__init__()
        self.fc1 = nn.Linear(states, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, actions)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        return self.fc3(torch.relu(self.fc2(x)))


class ReplayBuffer:
    def __init__(self, size=2000):
        self.items = deque(maxlen=size)

    def push(self, *item):
        self.items.append(item)

    def sample(self, n):
        s, a, r, s2, d = zip(*random.sample(list(self.items), n))
        return torch.stack(s), torch.tensor(a), torch.tensor(r), torch.stack(s2), torch.tensor(d)


class Agent:
    def __init__(self, gamma=0.9, lr=1e-3):
        self.q = QNetwork(2, 3)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.gamma = gamma

    def learn(self, batch):
        state, action, reward, next_state, done = batch
        q = self.q(state).gather(1, action[:, None]).squeeze(1)
        next_q = self.q(next_state).max(1).values
        target = reward + self.gamma * next_q * (1 - done)
        loss = nn.functional.smooth_l1_loss(q, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def physics(state, action):
    """A mass that is pushed to the left, not at all, or to the right."""
    speed = 0.9 * state[1] + 0.2 * (action - 1)
    position = (state[0] + 0.2 * speed).clamp(-1, 1)
    return torch.stack([position, speed]), -position.abs().item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    agent, buffer = Agent(), ReplayBuffer()
    state = torch.rand(2) - 0.5
    for step in range(300):
        action = random.randrange(3)
        next_state, reward = physics(state, action)
        done = float(step % 40 == 39)
        buffer.push(state, action, reward, next_state, done)
        state = torch.rand(2) - 0.5 if done else next_state
        if step >= 150:
            loss = agent.learn(buffer.sample(64))
            if step % 30 == 0:
                print(f"step {step} loss {loss:.5f}")


if __name__ == "__main__":
    main()
