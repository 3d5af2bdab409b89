import copy
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class QNet(nn.Module):
    def __init__(self, n_obs=5, n_act=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_obs, 48), nn.ReLU(), nn.Linear(48, n_act))

    def forward(self, x):
        return self.layers(x)


class DQN:
    def __init__(self, gamma=0.95, lr=1e-3, sync=20):
        self.q = QNet()
        self.target = self.q
        self.opt = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.gamma, self.sync, self.updates = gamma, sync, 0
        self.memory = deque(maxlen=1000)

    def act(self, s, eps=0.3):
        if random.random() < eps:
            return random.randrange(3)
        with torch.no_grad():
            return self.q(s).argmax().item()

    def learn(self, n=32):
        s, a, r, s2 = (torch.stack(t) for t in zip(*random.sample(self.memory, n)))
        with torch.no_grad():
            y = r + self.gamma * self.target(s2).max(1).values
        q = self.q(s).gather(1, a.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % self.sync == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.item()


random.seed(0)
torch.manual_seed(0)
agent = DQN()
s = torch.randn(5)
for t in range(160):
    a = agent.act(s)
    s2 = 0.8 * s + 0.2 * torch.randn(5)
    s2[a] += 0.5
    r = torch.tensor(float(s2[0] - s2[1].abs()))
    agent.memory.append((s, torch.tensor(a), r, s2))
    s = s2
    if t >= 40:
        loss = agent.learn()
    if t % 40 == 39:
        print(t, "loss", loss if t > 40 else None)
