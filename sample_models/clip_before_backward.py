"""A regression whose gradients are clipped before backward has made them.

Watch it with `gradscope run sample_models/clip_before_backward.py`.
"""

import torch
from torch import nn
from torch.nn import functional


def main() -> None:
    """Train on a smooth function of sixteen numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(30):
        inputs = torch.randn(32, 16)
        target = inputs[:, :4].sum(dim=1, keepdim=True).sin()
        loss = functional.mse_loss(model(inputs), target)
        optimizer.zero_grad()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)  # GS402
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
