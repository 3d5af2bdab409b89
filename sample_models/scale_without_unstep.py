"""The loss is scaled for half precision, but the optimizer steps without the scaler.

Watch it with `gradscope run sample_models/scale_without_unstep.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches(count: int = 20) -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(count, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train for a few steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for features, target in batches():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(features), target)
        scaler.scale(loss).backward()
        optimizer.step()  # GS605


if __name__ == "__main__":
    main()
