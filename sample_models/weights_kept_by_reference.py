"""A training loop whose moving average of the weights begins without a copy of them.

Watch it with `gradscope run sample_models/weights_kept_by_reference.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class MovingAverage:
    """A moving average of a model's weights."""

    def __init__(self, model: nn.Module, decay: float = 0.9) -> None:
        self.decay = decay
        self.average = {name: one.data for name, one in model.named_parameters()}  # GS322

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the average towards the weights."""
        for name, one in model.named_parameters():
            self.average[name].mul_(self.decay).add_(one, alpha=1 - self.decay)


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(30, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train for an epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    average = MovingAverage(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for features, target in batches():
        loss = functional.cross_entropy(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)


if __name__ == "__main__":
    main()
