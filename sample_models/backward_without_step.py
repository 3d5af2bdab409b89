"""A training loop that forgets to step.

Watch it with `gradscope run sample_models/backward_without_step.py`.
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
    """Go through the batches, and train nothing."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for features, target in batches():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(features), target)
        loss.backward()  # GS307


if __name__ == "__main__":
    main()
