"""Fine-tuning that gives a model its new head when the optimizer is already made.

Watch it with `gradscope run sample_models/training/new_head.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Classifier(nn.Module):
    """Features, and a head that reads classes from them."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.features(inputs))


def main() -> None:
    """Train for a few epochs."""
    torch.manual_seed(0)
    model = Classifier(100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # GS205
    model.head = nn.Linear(32, 3)
    inputs = torch.randn(96, 16)
    target = inputs[:, :3].argmax(1)
    for _ in range(4):
        for rows in torch.randperm(96).split(32):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs[rows]), target[rows]).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
