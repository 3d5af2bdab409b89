import torch
from torch import nn

torch.manual_seed(37)
model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1.0)
x = torch.randn(256, 20)
y = 0.05 * torch.sin(x[:, :1] + x[:, 1:2])
for epoch in range(15):
    for a, b in zip(x.split(32), y.split(32)):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
    if epoch % 5 == 4:
        print(epoch, loss.item())
