"""Four micro-batches make a step, and the clip comes after each of them.

Watch it with `gradscope run sample_models/clip_inside_accumulation.py`.
"""

import torch
from torch import nn
from torch.nn import functional

MICRO_BATCHES = 4


def main() -> None:
    """Train a classifier of points around four centres."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    centres = torch.randn(4, 10)
    for _ in range(20):
        optimizer.zero_grad()
        for _ in range(MICRO_BATCHES):
            target = torch.randint(4, (8,))
            inputs = centres[target] + 0.3 * torch.randn(8, 10)
            loss = functional.cross_entropy(model(inputs), target) / MICRO_BATCHES
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)  # GS409
        optimizer.step()


if __name__ == "__main__":
    main()
