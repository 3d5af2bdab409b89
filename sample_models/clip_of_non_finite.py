"""Gradients are divided by a count that is 0 for one batch; the clip makes all of them NaN.

Watch it with `gradscope run sample_models/clip_of_non_finite.py`.
"""

import torch
from torch import nn


class Tagger(nn.Module):
    """Scores the tokens of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map `[batch, 6]` to `[batch]`."""
        return self.scale * self.layers(tokens).squeeze(1)


def main() -> None:
    """Train on the tokens of each batch that have a label."""
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(12):
        tokens, wanted = torch.randn(16, 6), torch.randn(16)
        labelled = torch.arange(16) < (0 if step == 8 else 12)
        loss = ((model(tokens) - wanted).square() * labelled).sum()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            parameter.grad /= labelled.sum()  # a batch without any label: 0 / 0
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)  # GS408
        optimizer.step()


if __name__ == "__main__":
    main()
