"""Deep Q-learning in a gridworld."""

import copy
import random
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

SIZE, GAMMA = 4, 0.95
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]


class GridWorld:
    def reset(self):
        self.pos, self.t = (0, 0), 0
        return self.observe()

    def observe(self):
        obs = torch.zeros(SIZE * SIZE)
        obs[self.pos[0] * SIZE + self.pos[1]] = 1
        return obs

    def step(self, action):
        dr, dc = MOVES[action]
        self.pos = (min(max(self.pos[0] + dr, 0), SIZE - 1), min(max(self.pos[1] + dc, 0), SIZE - 1))
        self.t += 1
        goal = self.pos == (SIZE - 1, SIZE - 1)
        return self.observe(), 1.0 if goal else -0.05, goal or self.t >= 20


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(SIZE * SIZE, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, obs):
        return self.net(obs)


class Agent:
    def __init__(self):
        self.policy_net = QNet()
        self.target_net = copy.deepcopy(self.policy_net)
        self.optimizer = torch.optim.Adam(self.policy_net.parameters(), lr=5e-3)
        self.memory = deque(maxlen=500)

    def act(self, obs, epsilon):
        if random.random() < epsilon:
            return random.randrange(4)
        with torch.no_grad():
            return int(self.policy_net(obs).argmax())

    def learn(self, batch_size=32):
        if len(self.memory) < batch_size:
            return
        obs, action, reward, nxt, done = zip(*random.sample(self.memory, batch_size))
        obs, nxt = torch.stack(obs), torch.stack(nxt)
        q = self.policy_net(obs).gather(1, torch.tensor(action).unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.target_net(nxt).max(dim=1).values
            target = torch.tensor(reward) + GAMMA * best * (1 - torch.tensor(done).float())
        loss = F.smooth_l1_loss(q, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    env, agent = GridWorld(), Agent()
    for episode in range(10):
        obs, done, score = env.reset(), False, 0.0
        while not done:
            action = agent.act(obs, epsilon=0.3)
            nxt, reward, done = env.step(action)
            agent.memory.append((obs, action, reward, nxt, done))
            obs, score = nxt, score + reward
            agent.learn()
        if episode % 3 == 0:
            agent.target_net.load_state_dict(agent.policy_net.state_dict())
        print(f"episode {episode} score {score:.2f}")
