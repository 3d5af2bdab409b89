"""One batch with a broken sensor: its gradient is hundreds of times larger than the others.

Watch it with `gradscope run sample_models/gradient_spike.py`.
"""

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Train a regression on sensor readings."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    weights = torch.randn(12, 1) / 3
    for step in range(60):
        readings = torch.randn(32, 12)
        target = readings @ weights + 0.1 * torch.randn(32, 1)
        if step == 45:  # the sensor of one row reports in other units
            target[5] = 5000.0
        loss = functional.mse_loss(model(readings), target)
        optimizer.zero_grad()
        loss.backward()  # GS107
        optimizer.step()


if __name__ == "__main__":
    main()
