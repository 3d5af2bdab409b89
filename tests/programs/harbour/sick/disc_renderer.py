"""Fit a handful of coloured discs to a target picture by gradient descent."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Canvas:
    height: int = 24
    width: int = 24
    softness: float = 0.05

    def pixels(self):
        rows = torch.linspace(-1, 1, self.height)
        columns = torch.linspace(-1, 1, self.width)
        grid = torch.meshgrid(rows, columns, indexing="ij")
        return torch.stack(grid, dim=-1).reshape(-1, 2)

    def coverage(self, distance, radius):
        inside = radius - distance
        return (inside > 0).to(distance.dtype)


class DiscScene(nn.Module):
    def __init__(self, discs=6, canvas=Canvas()):
        super().__init__()
        self.canvas = canvas
        self.centre = nn.Parameter(torch.rand(discs, 2) * 1.6 - 0.8)
        self.log_radius = nn.Parameter(torch.full((discs,), -1.0))
        self.colour = nn.Parameter(torch.rand(discs, 3))
        self.background = nn.Parameter(torch.zeros(3))

    def forward(self, pixels):
        distance = torch.cdist(pixels, self.centre)
        alpha = self.canvas.coverage(distance, self.log_radius.exp())
        image = self.background.expand(len(pixels), 3)
        for index in range(alpha.shape[1]):
            weight = alpha[:, index : index + 1]
            image = weight * torch.sigmoid(self.colour[index]) + (1 - weight) * image
        return image


def build_model():
    torch.manual_seed(3)
    return DiscScene()


def build_batch():
    torch.manual_seed(4)
    pixels = Canvas().pixels()
    target = torch.stack([pixels[:, 0].abs(), (pixels.norm(dim=1) < 0.5).float(), torch.rand(len(pixels)) * 0.1], 1)
    return pixels, target


def loss_fn(output, target):
    return (output - target).square().mean()
