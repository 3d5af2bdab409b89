"""A classifier whose targets are shuffled apart from their inputs: it can only guess.

Watch it with `gradscope run sample_models/flat_loss.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

CLASSES, WIDTH = 8, 16


def make_data(rows: int) -> tuple[Tensor, Tensor]:
    """Return points around the centre of their class, and the classes."""
    centres = 2 * torch.eye(CLASSES, WIDTH)
    classes = torch.arange(rows) % CLASSES
    return centres[classes] + 0.5 * torch.randn(rows, WIDTH), classes


def main() -> None:
    """Train it on batches whose inputs and targets are drawn one without the other."""
    torch.manual_seed(0)
    inputs, targets = make_data(1024)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(200):
        drawn, others = torch.randint(0, 1024, (2, 64))
        loss = functional.cross_entropy(model(inputs[drawn]), targets[others])
        optimizer.zero_grad()
        loss.backward()  # GS708
        optimizer.step()


if __name__ == "__main__":
    main()
