import torch
import torch.nn.functional as F
from torch import nn


def network():
    return nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2))


def transitions(n):
    state = torch.randn(n, 3)
    action = torch.randint(0, 2, (n, 1))
    following = 0.9 * state + 0.2 * (2 * action - 1) + 0.05 * torch.randn(n, 3)
    return state, action, -following.pow(2).sum(1, keepdim=True), following


torch.manual_seed(77)
online = network()
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
for step in range(120):
    state, action, reward, following = transitions(64)
    value = online(state).gather(1, action)
    best = online(following).max(1, keepdim=True).values
    loss = F.smooth_l1_loss(value, reward + 0.9 * best)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
