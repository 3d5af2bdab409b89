import torch
from torch import nn


def distances(points):
    difference = points[:, :, None] - points[:, None]
    squared = difference.pow(2).sum(-1)
    return torch.where(squared > 0, squared.clamp(min=1e-12).sqrt(), torch.zeros_like(squared))


torch.manual_seed(5)
embed = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(embed.parameters(), lr=2e-3)
for step in range(60):
    features = torch.randn(8, 10, 6)
    wanted = (features[:, :, None, :3] - features[:, None, :, :3]).norm(dim=-1)
    loss = (distances(embed(features)) - wanted).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
