import torch
from torch import nn


def masked_mean(error, mask):
    return (error * mask).sum() / mask.sum().clamp(min=1)


torch.manual_seed(42)
model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
projection = torch.randn(12, 8) / 3
for frame in range(100):
    x = torch.randn(16, 12)
    visible = (torch.rand(16, 8) > 0.4).float()
    if frame == 80:
        visible.zero_()
    error = (model(x) - x @ projection).abs()
    loss = masked_mean(error, visible)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if frame % 20 == 19:
        print(frame, loss.item())
