import random
import torch
from torch import nn

random.seed(0)
torch.manual_seed(27)
N, GAMMA = 8, 0.9


def step(state, action):
    state = max(0, min(N - 1, state + (1 if action else -1)))
    return state, float(state == N - 1), state == N - 1


def encode(states):
    return nn.functional.one_hot(torch.tensor(states), N).float()


q = nn.Sequential(nn.Linear(N, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(q.parameters(), lr=5e-3)
memory = []
for _ in range(600):
    s, a = random.randrange(N - 1), random.randrange(2)
    memory.append((s, a, *step(s, a)))
for update in range(150):
    s, a, s2, r, done = zip(*random.sample(memory, 64))
    value = q(encode(s)).gather(1, torch.tensor(a)[:, None]).squeeze(1)
    future = q(encode(s2)).max(1).values
    target = torch.tensor(r) + GAMMA * future * (1 - torch.tensor(done).float())
    loss = nn.functional.mse_loss(value, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 50 == 49:
        print(update, loss.item(), q(encode([0]))[0, 1].item())
