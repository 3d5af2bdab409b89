"""An optimizer that computes its update and does not store it.

Watch it with `gradscope run sample_models/step_without_effect.py`.
"""

from collections.abc import Iterable

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


class SignDescent(torch.optim.Optimizer):
    """Steps of one size, in the direction of the gradient's signs."""

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Make a step."""
        for group in self.param_groups:
            for weight in group["params"]:
                weight.sub(weight.grad.sign(), alpha=group["lr"])


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = SignDescent(model.parameters(), lr=0.01)
    for features, target in batches(30):
        optimizer.zero_grad()
        functional.cross_entropy(model(features), target).backward()
        optimizer.step()  # GS318


if __name__ == "__main__":
    main()
