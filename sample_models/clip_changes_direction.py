"""Clipping by value far below the size of the gradients, which leaves little but their signs.

Watch it with `gradscope run sample_models/clip_changes_direction.py`.
"""

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Train a classifier on inputs of which some are much larger than others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    centres = torch.randn(4, 10) * torch.logspace(-1, 0.5, 10)
    for _ in range(40):
        target = torch.randint(4, (16,))
        inputs = centres[target] + 0.3 * torch.randn(16, 10)
        loss = functional.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.005)  # GS407
        optimizer.step()


if __name__ == "__main__":
    main()
