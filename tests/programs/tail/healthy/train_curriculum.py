"""First easy examples, then hard ones."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 32), nn.GELU())
        self.mixer = nn.Sequential(nn.Linear(32, 32), nn.GELU())
        self.out = nn.Linear(32, 4)
        self.hard = False

    def forward(self, x):
        if self.hard:
            scale = 1 + 0.1 * torch.randn(len(x), 1)
            codes = self.encoder(x * scale)
        else:
            codes = self.encoder(x)
        return self.out(self.mixer(codes))


def main():
    torch.manual_seed(23)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    centres = torch.randn(4, 16)
    for step in range(60):
        model.hard = step >= 24
        kinds = torch.randint(0, 4, (24,))
        loss = F.cross_entropy(model(centres[kinds] + torch.randn(24, 16)), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(step, f"{loss.item():.4f}")


main()
