"""Rotation refinement: a network predicts a correction (6D rotation) to an initial pose; some poses are right already."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def rotation_from_6d(v):
    a = F.normalize(v[:, :3], dim=-1)
    b = v[:, 3:] - (a * v[:, 3:]).sum(dim=-1, keepdim=True) * a
    b = F.normalize(b, dim=-1)
    return torch.stack([a, b, torch.linalg.cross(a, b, dim=-1)], dim=-1)


class Refiner(nn.Module):
    def __init__(self, n_in=16, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.out = nn.Linear(hidden, 6)
        nn.init.zeros_(self.out.weight)
        self.out.bias.data = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0])

    def forward(self, x, target=None):
        return rotation_from_6d(self.out(self.body(x)))


def angle(r1, r2):
    trace = (r1 * r2).sum(dim=(1, 2))
    cosine = ((trace - 1) / 2).clamp(-1 + 1e-6, 1 - 1e-6)
    return torch.acos(cosine)


def build_model():
    torch.manual_seed(331)
    return Refiner()


def build_batch():
    g = torch.Generator().manual_seed(332)
    target = rotation_from_6d(torch.tensor([1.0, 0, 0, 0, 1.0, 0]) + 0.3 * torch.randn(20, 6, generator=g))
    target[::5] = torch.eye(3)
    x = target.flatten(1) @ torch.randn(9, 16, generator=g) + 0.05 * torch.randn(20, 16, generator=g)
    return {"x": x, "target": target}


def loss_fn(output, batch):
    return angle(output, batch["target"]).mean()
