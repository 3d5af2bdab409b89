"""A training loop that never zeroes its gradients: each step follows the sum of all before it.

Watch it with `gradscope run sample_models/missing_zero_grad.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(20, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train for a few epochs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(3):
        for features, target in batches():
            loss = functional.cross_entropy(model(features), target)
            loss.backward()  # GS301
            optimizer.step()


if __name__ == "__main__":
    main()
