"""A training loop whose moving average of the weights is pushed away from them.

Watch it with `gradscope run sample_models/wrong_weight_average.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class MovingAverage:
    """A moving average of a model's weights."""

    def __init__(self, model: nn.Module, decay: float = 0.9) -> None:
        self.decay = decay
        self.average = [one.detach().clone() for one in model.parameters()]

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move the average, by a share of its distance from the weights."""
        for average, one in zip(self.average, model.parameters(), strict=True):
            average.add_((average - one) * (1 - self.decay))  # GS328


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
