"""A limit of 0.001 on gradients a thousand times larger, so that the limit sets every step.

Watch it with `gradscope run sample_models/always_clipped.py`; the recording that it leaves shows
with `gradscope clip-report` how often and how hard the clip cuts, and which limit would do.
"""

import torch
from torch import nn
from torch.nn import functional

MAX_NORM = 0.001


def main() -> None:
    """Train a classifier with steps of one length, which is next to nothing."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    centres = torch.randn(4, 10)
    for _ in range(40):
        target = torch.randint(4, (16,))
        inputs = centres[target] + 0.3 * torch.randn(16, 10)
        loss = functional.cross_entropy(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)  # GS405
        optimizer.step()


if __name__ == "__main__":
    main()
