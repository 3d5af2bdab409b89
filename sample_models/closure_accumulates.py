"""LBFGS with a closure that never zeroes the gradients of its last evaluation.

Watch it with `gradscope run sample_models/closure_accumulates.py`.
"""

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
    """Fit a linear classifier."""
    torch.manual_seed(0)
    model = nn.Linear(20, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    features, target = batches(1)[0]

    def closure() -> float:
        loss = functional.cross_entropy(model(features), target)
        loss.backward()  # GS319
        return float(loss)

    for _ in range(5):
        optimizer.zero_grad()
        optimizer.step(closure)


if __name__ == "__main__":
    main()
