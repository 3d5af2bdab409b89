"""An equivariant message-passing network on padded molecules; some atoms have no neighbour."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.gate = nn.Linear(width, 1)
        self.move = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1, bias=False))
        nn.init.xavier_uniform_(self.move[-1].weight, gain=0.01)
        self.node = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h, x, adjacency):
        n = h.shape[1]
        difference = x.unsqueeze(2) - x.unsqueeze(1)
        squared = difference.square().sum(dim=-1, keepdim=True)
        pair = torch.cat(
            [h.unsqueeze(2).expand(-1, -1, n, -1), h.unsqueeze(1).expand(-1, n, -1, -1), squared], dim=-1
        )
        message = self.edge(pair)
        message = message * torch.sigmoid(self.gate(message)) * adjacency.unsqueeze(-1)
        degree = adjacency.sum(dim=2, keepdim=True).clamp(min=1)
        direction = difference / (squared + 1e-8).sqrt()
        x = x + (direction * self.move(message) * adjacency.unsqueeze(-1)).sum(dim=2) / degree
        return h + self.node(torch.cat([h, message.sum(dim=2) / degree], dim=-1)), x


class MoleculeNet(nn.Module):
    def __init__(self, atoms=6, width=40, depth=6):
        super().__init__()
        self.atoms = nn.Embedding(atoms, width, padding_idx=0)
        self.layers = nn.ModuleList([Layer(width) for _ in range(depth)])
        self.energy = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.register_buffer("mean", torch.tensor(-3.0))

    def forward(self, atoms, x):
        real = (atoms > 0).float()
        distance = torch.cdist(x, x)
        adjacency = (distance < 2).float() * real.unsqueeze(1) * real.unsqueeze(2)
        adjacency = adjacency * (1 - torch.eye(atoms.shape[1]))
        h, moved = self.atoms(atoms), x
        for layer in self.layers:
            h, moved = layer(h, moved, adjacency)
        energy = (self.energy(h).squeeze(-1) * real).sum(dim=1) + self.mean * real.sum(dim=1)
        return energy, (moved - x) * real.unsqueeze(-1)


def build_model():
    torch.manual_seed(227)
    return MoleculeNet()


def build_batch():
    torch.manual_seed(228)
    atoms = torch.randint(1, 6, (5, 14))
    for row, size in enumerate((14, 9, 12, 6, 11)):
        atoms[row, size:] = 0
    x = torch.randn(5, 14, 3) * 1.5
    x[:, 2] += 20
    return (atoms, x), (torch.randn(5) - 30, torch.randn(5, 14, 3) * 0.1)


def loss_fn(output, batch):
    energy, force = output
    mask = (batch[0][0] > 0).unsqueeze(-1)
    return F.l1_loss(energy, batch[1][0]) + 10 * ((force - batch[1][1]).square() * mask).sum() / mask.sum()
