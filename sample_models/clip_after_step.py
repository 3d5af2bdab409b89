"""A recurrent classifier whose gradients are clipped when the step has already used them.

Watch it with `gradscope run sample_models/clip_after_step.py`.
"""

import torch
from torch import nn
from torch.nn import functional


class SequenceClassifier(nn.Module):
    """A GRU whose last state tells the class."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(8, 24, batch_first=True)
        self.head = nn.Linear(24, 3)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Map `[batch, time, 8]` to `[batch, 3]`."""
        states, _ = self.encoder(sequence)
        return self.head(states[:, -1])


def main() -> None:
    """Train on sequences whose mean tells the class."""
    torch.manual_seed(0)
    model = SequenceClassifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for _ in range(30):
        target = torch.randint(3, (16,))
        sequence = torch.randn(16, 12, 8) + target[:, None, None]
        loss = functional.cross_entropy(model(sequence), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.25)  # GS401


if __name__ == "__main__":
    main()
