"""Gradients that are clipped before the ranks reduce them.

Watch it with `gradscope run --nproc 2 sample_models/local_norm_clip.py`.
With `--fixed` it does the right thing.
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

FIXED = "--fixed" in sys.argv


def batch(generator: torch.Generator, size: int = 16) -> tuple[Tensor, Tensor]:
    """Points of four classes, each around a centre of its own."""
    centres = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    target = torch.randint(4, (size,), generator=generator)
    return centres[target] + torch.randn(size, 20, generator=generator), target


def main() -> None:
    """Train without DDP: the script reduces the gradients itself."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(100 + dist.get_rank())
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(20):
        features, target = batch(draws)
        loss = functional.cross_entropy(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        if not FIXED:
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)  # GS805
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        if FIXED:
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
