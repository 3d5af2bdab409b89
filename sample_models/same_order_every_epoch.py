"""A DistributedSampler whose epoch is never set: every epoch has the same order.

Watch it with `gradscope run --nproc 2 sample_models/same_order_every_epoch.py`.
With `--fixed` it does the right thing.
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FIXED = "--fixed" in sys.argv


def batch(generator: torch.Generator, size: int = 16) -> tuple[Tensor, Tensor]:
    """Points of four classes, each around a centre of its own."""
    centres = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    target = torch.randint(4, (size,), generator=generator)
    return centres[target] + torch.randn(size, 20, generator=generator), target


def main() -> None:
    """Train for three epochs."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(*batch(torch.Generator().manual_seed(5), 160))
    sampler = DistributedSampler(data)  # GS809
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        if FIXED:
            sampler.set_epoch(epoch)
        for features, target in loader:
            loss = functional.cross_entropy(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
