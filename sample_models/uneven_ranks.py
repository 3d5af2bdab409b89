"""Ranks with 24 and 4 rows, whose mean losses get the same weight.

Watch it with `gradscope run --nproc 2 sample_models/uneven_ranks.py`.
With `--fixed` it does the right thing.
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

FIXED = "--fixed" in sys.argv


def batch(generator: torch.Generator, size: int = 16) -> tuple[Tensor, Tensor]:
    """Points of four classes, each around a centre of its own."""
    centres = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    target = torch.randint(4, (size,), generator=generator)
    return centres[target] + torch.randn(size, 20, generator=generator), target


def main() -> None:
    """Train on batches of unequal size."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(100 + dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    size = 4 if dist.get_rank() else 24
    for _ in range(20):
        features, target = batch(draws, size)
        if FIXED:
            rows = torch.tensor(float(size))
            dist.all_reduce(rows)
            total = functional.cross_entropy(model(features), target, reduction="sum")
            loss = total * dist.get_world_size() / rows
        else:
            loss = functional.cross_entropy(model(features), target)  # GS803
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
