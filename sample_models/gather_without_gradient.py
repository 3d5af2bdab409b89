"""A contrastive loss over gathered features, which are constants for autograd.

Watch it with `gradscope run --nproc 2 sample_models/gather_without_gradient.py`.
With `--fixed` it does the right thing.
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_gather
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

FIXED = "--fixed" in sys.argv


def batch(generator: torch.Generator, size: int = 16) -> tuple[Tensor, Tensor]:
    """Points of four classes, each around a centre of its own."""
    centres = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    target = torch.randint(4, (size,), generator=generator)
    return centres[target] + torch.randn(size, 20, generator=generator), target


def main() -> None:
    """Train two views of each point to meet, with the negatives of all ranks."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(100 + dist.get_rank())
    model = DistributedDataParallel(nn.Linear(20, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rank = dist.get_rank()
    for _ in range(20):
        points, _ = batch(draws)
        first = model(points)
        second = model(points + 0.1 * torch.randn(points.shape, generator=draws))
        if FIXED:
            gathered = all_gather(second)
        else:
            gathered = [torch.empty_like(second) for _ in range(dist.get_world_size())]
            dist.all_gather(gathered, second)  # GS808
        logits = first @ torch.cat(gathered).T
        loss = functional.cross_entropy(logits, torch.arange(16) + 16 * rank)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
