"""A learning rate whose first steps throw the weights far off: the units die, and none comes back.

Watch it with `gradscope run sample_models/training/large_rate.py`.
"""

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Train for a few epochs."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)  # GS108
    inputs = 2 * torch.rand(192, 10) + 1
    target = inputs[:, :3].argmax(1)
    for _ in range(4):
        for rows in torch.randperm(192).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs[rows]), target[rows]).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
