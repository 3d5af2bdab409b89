"""A maximum norm of 0, meant as "no clipping", makes every gradient zero.

Watch it with `gradscope run sample_models/zero_max_norm.py`.
"""

import torch
from torch import nn
from torch.nn import functional

CONFIG = {"lr": 0.1, "max_norm": 0.0}


def main() -> None:
    """Train a classifier, which stays as it was made."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=CONFIG["lr"])
    centres = torch.randn(4, 10)
    for _ in range(20):
        target = torch.randint(4, (16,))
        inputs = centres[target] + 0.3 * torch.randn(16, 10)
        loss = functional.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CONFIG["max_norm"])  # GS410
        optimizer.step()


if __name__ == "__main__":
    main()
