"""A limit of 50, taken over from a model with a summed loss: nothing ever comes near it.

Watch it with `gradscope run --budget none sample_models/never_clipped.py`.
"""

import torch
from torch import nn
from torch.nn import functional

MAX_NORM = 50.0


def main() -> None:
    """Train a regression whose loss is a mean."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    weights = torch.randn(8, 1)
    for _ in range(120):
        inputs = torch.randn(32, 8)
        loss = functional.mse_loss(model(inputs), inputs @ weights)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)  # GS406
        optimizer.step()


if __name__ == "__main__":
    main()
