"""A training loop that averages the directions of two losses, kept by reference.

Watch it with `gradscope run sample_models/gradients_kept_by_reference.py`.
"""

import torch
from torch import Tensor, nn


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points, and the two numbers that are to be predicted for each."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(30, 32, 8, generator=generator)
    return [(one, torch.stack([one.sum(1), one[:, 0] - one[:, 1]], 1)) for one in points]


def main() -> None:
    """Train with steps of the same length for both losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.02)
    for points, targets in batches():
        errors = (model(points) - targets).square().mean(0)
        directions = []
        for error in errors:
            optimizer.zero_grad(set_to_none=False)
            error.backward(retain_graph=True)
            directions.append([one.grad for one in weights])  # GS323
        lengths = [
            torch.cat([g.flatten() for g in one if g is not None]).norm() for one in directions
        ]
        for number, one in enumerate(weights):
            parts = zip(directions, lengths, strict=True)
            one.grad = sum((kept[number] / length for kept, length in parts), torch.zeros_like(one))
        optimizer.step()


if __name__ == "__main__":
    main()
