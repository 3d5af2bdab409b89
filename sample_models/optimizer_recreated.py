"""A training loop that makes a new optimizer in every epoch: the averages of Adam are lost.

Watch it with `gradscope run sample_models/optimizer_recreated.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(5, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train for a few epochs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    for _ in range(6):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # GS314
        for features, target in batches():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(features), target)
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
