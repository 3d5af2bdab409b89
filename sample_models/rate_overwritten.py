"""A training loop whose warm-up by hand is replaced by a scheduler in each step.

Watch it with `gradscope run sample_models/rate_overwritten.py`.
"""

import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

WARM_UP = 20


def main() -> None:
    """Train with a warm-up of the learning rate."""
    torch.manual_seed(0)
    features = torch.randn(256, 20)
    target = features[:, :4].argmax(1)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = LambdaLR(optimizer, lambda step: 0.99**step)
    for step in range(2 * WARM_UP):
        rows = torch.randint(0, 256, (32,))
        loss = functional.cross_entropy(model(features[rows]), target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step < WARM_UP:
            for group in optimizer.param_groups:
                group["lr"] = 0.1 * (step + 1) / WARM_UP
        schedule.step()  # GS345


if __name__ == "__main__":
    main()
