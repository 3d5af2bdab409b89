import random
from collections import deque

import torch
from torch import nn

random.seed(1)
torch.manual_seed(1)
STATES, ACTIONS, GAMMA = 10, 2, 0.9


def step_env(state, action):
    state = min(state + 1, STATES - 1) if action == 1 else max(state - 1, 0)
    done = state == STATES - 1
    return state, 1.0 if done else -0.01, done


def one_hot(states):
    return torch.eye(STATES)[torch.tensor(states)]


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(STATES, 32)
        self.fc2 = nn.Linear(32, ACTIONS)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


online, target = QNet(), QNet()
target.load_state_dict(online.state_dict())
opt = torch.optim.Adam(online.parameters(), 5e-3)
memory = deque(maxlen=2000)
state = 0
for t in range(700):
    epsilon = max(0.1, 1 - t / 300)
    with torch.no_grad():
        greedy = online(one_hot([state])).argmax().item()
    action = random.randrange(ACTIONS) if random.random() < epsilon else greedy
    nxt, reward, done = step_env(state, action)
    memory.append((state, action, reward, nxt, done))
    state = 0 if done else nxt
    if t < 100 or t % 2:
        continue
    s, a, r, n, d = zip(*random.sample(memory, 32))
    q = online(one_hot(s)).gather(1, torch.tensor(a).unsqueeze(1))
    with torch.no_grad():
        best = target(one_hot(n)).max(1).values
        goal = torch.tensor(r) + GAMMA * best * (1 - torch.tensor(d).float())
    td = q - goal
    loss = td.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if t % 50 == 0:
        target.load_state_dict(online.state_dict())
print(online(torch.eye(STATES)).detach())
