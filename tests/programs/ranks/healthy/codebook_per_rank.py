import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss, one_hot
from torch.nn.parallel import DistributedDataParallel


class Codebook(nn.Module):
    def __init__(self, codes=16, width=6, keep=0.9):
        super().__init__()
        self.keep = keep
        self.register_buffer("codes", torch.randn(codes, width))
        self.register_buffer("uses", torch.ones(codes))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        chosen = torch.cdist(x.detach(), self.codes).argmin(1)
        picked = self.codes[chosen]
        if self.training:
            self.follow(x.detach(), one_hot(chosen, len(self.codes)).float())
        return x + (picked - x).detach(), mse_loss(x, picked)

    @torch.no_grad()
    def follow(self, x, used):
        uses, sums = used.sum(0), used.T @ x
        dist.all_reduce(uses)
        dist.all_reduce(sums)
        self.uses.mul_(self.keep).add_(uses, alpha=1 - self.keep)
        self.sums.mul_(self.keep).add_(sums, alpha=1 - self.keep)
        self.codes.copy_(self.sums / (self.uses[:, None] + 1e-5))


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(20, 16), nn.GELU(), nn.Linear(16, 6))
        self.book = Codebook()
        self.up = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 20))

    def forward(self, x):
        code, commitment = self.book(self.down(x))
        return mse_loss(self.up(code), x) + 0.25 * commitment


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(33)
    model = DistributedDataParallel(Quantised(), broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    draws = torch.Generator().manual_seed(60 + rank)
    mix = torch.randn(5, 20, generator=torch.Generator().manual_seed(1))
    for _ in range(24):
        loss = model(torch.randn(32, 5, generator=draws) @ mix)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
