"""Weights in bfloat16 with a small learning rate: nearly every update is rounded away.

Watch it with `gradscope run sample_models/lost_update.py`.
"""

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Train a classifier of points around four centres, all of it in bfloat16."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)  # GS603
    centres = torch.randn(4, 16)
    for _ in range(30):
        target = torch.randint(4, (32,))
        inputs = centres[target] + 0.5 * torch.randn(32, 16)
        loss = functional.cross_entropy(model(inputs.to(torch.bfloat16)).float(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
