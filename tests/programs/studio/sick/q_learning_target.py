"""Deep Q-learning on a chain of states."""

import copy
import random
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

CONFIG = {"states": 8, "gamma": 0.95, "batch": 32, "sync": 20, "steps": 200, "epsilon": 0.3}


class Chain:
    def __init__(self, length):
        self.length, self.position = length, 0

    def observe(self):
        return F.one_hot(torch.tensor(self.position), self.length).float()

    def step(self, action):
        self.position = min(self.position + 1, self.length - 1) if action == 1 else max(self.position - 1, 0)
        done = self.position == self.length - 1
        reward = 1.0 if done else -0.01
        observation = self.observe()
        if done:
            self.position = 0
        return observation, reward, done


class Agent:
    def __init__(self, cfg):
        self.cfg = cfg
        self.online = nn.Sequential(nn.Linear(cfg["states"], 32), nn.ReLU(), nn.Linear(32, 2))
        self.target = self.online
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=2e-3)
        self.memory = deque(maxlen=1000)

    def act(self, observation):
        if random.random() < self.cfg["epsilon"]:
            return random.randrange(2)
        with torch.no_grad():
            return int(self.online(observation).argmax())

    def learn(self):
        batch = random.sample(self.memory, self.cfg["batch"])
        obs, action, reward, after, done = zip(*batch, strict=True)
        obs, after = torch.stack(obs), torch.stack(after)
        action, reward, done = torch.tensor(action), torch.tensor(reward), torch.tensor(done).float()
        value = self.online(obs).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.target(after).max(1).values
            goal = reward + self.cfg["gamma"] * (1 - done) * best
        loss = F.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())


def main():
    torch.manual_seed(0)
    random.seed(0)
    env, agent = Chain(CONFIG["states"]), Agent(CONFIG)
    observation = env.observe()
    for step in range(CONFIG["steps"]):
        action = agent.act(observation)
        after, reward, done = env.step(action)
        agent.memory.append((observation, action, reward, after, done))
        observation = env.observe() if done else after
        if len(agent.memory) >= CONFIG["batch"]:
            loss = agent.learn()
            if step % 50 == 0:
                print(step, round(loss, 4))
        if step % CONFIG["sync"] == 0:
            agent.sync()


if __name__ == "__main__":
    main()
