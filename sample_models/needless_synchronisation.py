"""Gradient accumulation without no_sync: every micro-batch is reduced.

Watch it with `gradscope run --nproc 2 sample_models/needless_synchronisation.py`.
With `--fixed` it does the right thing.
"""

import sys
from contextlib import nullcontext

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
    """Train with four micro-batches per step."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(100 + dist.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        for micro in range(4):
            features, target = batch(draws, 8)
            with model.no_sync() if FIXED and micro < 3 else nullcontext():
                loss = functional.cross_entropy(model(features), target) / 4  # GS810
                loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
