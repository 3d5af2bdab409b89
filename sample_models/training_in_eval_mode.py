"""A model that goes to eval mode after the first epoch, and never back.

Watch it with `gradscope run sample_models/training_in_eval_mode.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(8, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def accuracy(model: nn.Module, features: Tensor, target: Tensor) -> float:
    """The share of correct answers."""
    model.eval()  # GS312
    with torch.no_grad():
        return (model(features).argmax(1) == target).float().mean().item()


def main() -> None:
    """Train for a few epochs, with an evaluation after each."""
    torch.manual_seed(0)
    layers = [nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for _ in range(4):
        for features, target in batches():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(features), target)
            loss.backward()
            optimizer.step()
        accuracy(model, *batches()[0])


if __name__ == "__main__":
    main()
