import torch
from torch import nn


def train_epoch(model, optimizer, xs, ys):
    total = 0.0
    for x, y in zip(xs, ys):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(xs)


torch.manual_seed(19)
t = torch.rand(12, 20, 2)
y = torch.cos(3 * t[..., :1]) * t[..., 1:]
model = nn.Sequential(nn.Linear(2, 40), nn.Tanh(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
for epoch in range(12):
    print(epoch, train_epoch(model, optimizer, t, y))
