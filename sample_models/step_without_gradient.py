"""A training loop whose optimizer holds a copy of the model: it steps without a gradient.

gradscope run sample_models/step_without_gradient.py
"""

import copy

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
    """Train for an epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    trained = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    for features, target in batches():
        model.zero_grad()
        loss = functional.cross_entropy(model(features), target)
        loss.backward()
        optimizer.step()  # GS306


if __name__ == "__main__":
    main()
