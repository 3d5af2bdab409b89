"""Batch normalization whose running statistics differ between ranks.

Watch it with `gradscope run --nproc 2 sample_models/statistics_per_rank.py`.
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
    """Train; the evaluation depends on the rank."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(100 + dist.get_rank())
    net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    model = DistributedDataParallel(net, broadcast_buffers=FIXED)  # GS811
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(20):
        features, target = batch(draws, 32)
        loss = functional.cross_entropy(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
