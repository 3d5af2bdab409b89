"""Q-learning on a ring of states with a periodically synchronised target network."""
import random
from collections import deque

import torch
import torch.nn as nn

STATES, ACTIONS, GAMMA = 12, 3, 0.9


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(STATES, 32), nn.ReLU(), nn.Linear(32, ACTIONS))

    def forward(self, s):
        return self.body(nn.functional.one_hot(s, STATES).float())


def env_step(s, a):
    nxt = (s + a - 1) % STATES
    return nxt, 1.0 if nxt == STATES // 2 else -0.05


class Learner:
    def __init__(self, sync_every=25):
        self.online, self.target = QNet(), QNet()
        self.opt = torch.optim.Adam(self.online.parameters(), lr=5e-3)
        self.buffer = deque(maxlen=2000)
        self.sync_every = sync_every
        self.sync()

    def sync(self):
        for t, p in zip(self.target.parameters(), self.online.parameters()):
            t.data = p.data

    def act(self, s, eps):
        if random.random() < eps:
            return random.randrange(ACTIONS)
        with torch.no_grad():
            return int(self.online(torch.tensor(s)).argmax())

    def learn(self):
        s, a, r, n = map(torch.tensor, zip(*random.sample(self.buffer, 64)))
        q = self.online(s).gather(1, a[:, None]).squeeze(1)
        with torch.no_grad():
            y = r + GAMMA * self.target(n).max(1).values
        loss = nn.functional.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    random.seed(71)
    torch.manual_seed(71)
    learner, s = Learner(), 0
    for t in range(100):
        s = random.randrange(STATES)
        a = learner.act(s, 1.0)
        n, r = env_step(s, a)
        learner.buffer.append((s, a, r, n))
    for t in range(200):
        a = learner.act(s, 0.3)
        n, r = env_step(s, a)
        learner.buffer.append((s, a, r, n))
        s = n
        loss = learner.learn()
        if (t + 1) % learner.sync_every == 0:
            learner.sync()
            print(f"{t + 1} td loss {loss:.4f}")


main()
