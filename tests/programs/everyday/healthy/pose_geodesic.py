"""Regress the rotation between two point clouds, geodesic loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(23)


def rotation(six):
    """Gram-Schmidt of six numbers to a rotation matrix."""
    a, b = six[..., :3], six[..., 3:]
    x = F.normalize(a, dim=-1)
    y = F.normalize(b - (x * b).sum(-1, keepdim=True) * x, dim=-1)
    return torch.stack([x, y, torch.cross(x, y, dim=-1)], dim=-2)


def geodesic(predicted, target):
    cos = ((predicted.transpose(-1, -2) @ target).diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
    return torch.acos(cos.clamp(-1 + 1e-6, 1 - 1e-6)).mean()


class PoseNet(nn.Module):
    def __init__(self, points=8, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(points * 6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(width, 6)
        nn.init.zeros_(self.out.weight)
        with torch.no_grad():
            self.out.bias.copy_(torch.tensor([1.0, 0, 0, 0, 1.0, 0]))

    def forward(self, source, target):
        h = self.net(torch.cat([source, target], -1).flatten(1))
        return rotation(self.out(h))


def clouds(n, points=8):
    source = torch.randn(n, points, 3)
    r = rotation(torch.tensor([1.0, 0, 0, 0, 1.0, 0]) + 0.4 * torch.randn(n, 6))
    r[: n // 8] = torch.eye(3)
    still = torch.zeros(n, points, 3)
    source[: n // 8] = still[: n // 8]
    return source, source @ r.transpose(-1, -2), r


model = PoseNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(160):
    source, target, r = clouds(32)
    loss = geodesic(model(source, target), r)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} angle {loss.item():.4f}")
