import random
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn


class Chain:
    """Walk on a line of cells; the reward waits at the right end."""

    def __init__(self, cells=6):
        self.cells = cells

    def reset(self):
        self.position = random.randrange(self.cells)
        return self.observation()

    def observation(self):
        x = torch.zeros(self.cells)
        x[self.position] = 1
        return x

    def step(self, action):
        self.position = min(max(self.position + (1 if action else -1), 0), self.cells - 1)
        done = self.position == self.cells - 1
        return self.observation(), float(done), done


class QNet(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, actions))

    def forward(self, x):
        return self.net(x)


class Agent:
    def __init__(self, inputs, actions, gamma=0.9):
        self.q = QNet(inputs, actions)
        self.target_q = QNet(inputs, actions)
        self.target_q.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=3e-3)
        self.buffer = deque(maxlen=500)
        self.gamma = gamma

    @torch.no_grad()
    def act(self, state, epsilon):
        return random.randrange(2) if random.random() < epsilon else int(self.q(state).argmax())

    def learn(self, batch_size=32):
        batch = random.sample(self.buffer, batch_size)
        s, a, r, s2, done = (torch.stack([torch.as_tensor(x) for x in column]) for column in zip(*batch))
        q = self.q(s).gather(1, a.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            next_q = self.target_q(s2).max(1).values
        target = r.float() + self.gamma * next_q * (~done).float()
        loss = F.smooth_l1_loss(q, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    random.seed(1)
    torch.manual_seed(1)
    env, agent = Chain(), Agent(6, 2)
    steps = 0
    for episode in range(40):
        state, done, t = env.reset(), False, 0
        while not done and t < 20:
            action = agent.act(state, max(0.1, 1 - episode / 20))
            following, reward, done = env.step(action)
            agent.buffer.append((state, action, reward, following, done))
            state, t, steps = following, t + 1, steps + 1
            if len(agent.buffer) >= 64 and steps % 2 == 0:
                loss = agent.learn()
        if episode % 10 == 0:
            agent.target_q.load_state_dict(agent.q.state_dict())
            print(episode, t)
    print(loss)


if __name__ == "__main__":
    main()
