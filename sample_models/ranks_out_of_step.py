"""A rank that leaves a branch out of its loss: DDP waits for the gradients.

Watch it with `gradscope run --nproc 2 sample_models/ranks_out_of_step.py`.
With `--fixed` it does the right thing.
"""

import sys
from datetime import timedelta

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


class Branches(nn.Module):
    """A model with a branch that may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.extra = nn.Linear(20, 4), nn.Linear(20, 4)

    def forward(self, features: Tensor, with_extra: bool) -> Tensor:
        """Return the logits."""
        logits = self.body(features)
        return logits + self.extra(features) if with_extra else logits


def main() -> None:
    """Train; DDP raises in the step after the first difference."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    torch.manual_seed(0)
    draws = torch.Generator().manual_seed(100 + dist.get_rank())
    net = Branches()
    model = DistributedDataParallel(net, find_unused_parameters=FIXED)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(20):
        features, target = batch(draws)
        with_extra = dist.get_rank() == 0 or step % 2 == 0
        loss = functional.cross_entropy(model(features, with_extra), target)  # GS806
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
