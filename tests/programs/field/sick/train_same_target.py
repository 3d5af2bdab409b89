import copy
import random
from collections import deque

import torch
from torch import nn


class QNet(nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(n, 48), nn.ReLU(), nn.Linear(48, 2))

    def forward(self, s):
        return self.fc(s)


class Corridor:
    """Walk right to reach the goal; each step costs a little."""

    def __init__(self, n=8):
        self.n = n

    def observe(self):
        return torch.eye(self.n)[self.at]

    def reset(self):
        self.at = 0
        return self.observe()

    def step(self, action):
        self.at = max(0, min(self.n - 1, self.at + (1 if action else -1)))
        done = self.at == self.n - 1
        return self.observe(), 1.0 if done else -0.05, done


class DQN:
    def __init__(self, gamma=0.95, sync=20):
        self.policy_net = QNet()
        self.target_net = self.policy_net
        self.optimizer = torch.optim.Adam(self.policy_net.parameters(), lr=2e-3)
        self.memory = deque(maxlen=500)
        self.gamma, self.sync, self.count = gamma, sync, 0

    def choose(self, state, eps):
        if random.random() < eps:
            return random.randrange(2)
        return int(self.policy_net(state).argmax())

    def update(self, size=32):
        if len(self.memory) < size:
            return
        s, a, r, s2, done = zip(*random.sample(list(self.memory), size))
        s, s2 = torch.stack(s), torch.stack(s2)
        r, done = torch.tensor(r), torch.tensor(done).float()
        q = self.policy_net(s).gather(1, torch.tensor(a)[:, None]).squeeze(1)
        q_next = self.target_net(s2).max(1)[0]
        expected = r + self.gamma * q_next * (1 - done)
        loss = nn.functional.mse_loss(q, expected)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.count += 1
        if self.count % self.sync == 0:
            self.target_net.load_state_dict(self.policy_net.state_dict())


def main():
    random.seed(0)
    torch.manual_seed(36)
    env, agent = Corridor(), DQN()
    for ep in range(25):
        state, total = env.reset(), 0.0
        for _ in range(20):
            action = agent.choose(state, 0.5 * 0.9**ep)
            following, reward, done = env.step(action)
            agent.memory.append((state, action, reward, following, done))
            agent.update()
            state, total = following, total + reward
            if done:
                break
    print("return", total)


main()
