"""The averaged copy of the model is clipped, and not the model that is trained.

Watch it with `gradscope run sample_models/clip_of_strangers.py`.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches(count: int = 20) -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(count, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for features, target in batches():
        optimizer.zero_grad()
        functional.cross_entropy(model(features), target).backward()
        nn.utils.clip_grad_norm_(average.parameters(), 1.0)  # GS411
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)


if __name__ == "__main__":
    main()
