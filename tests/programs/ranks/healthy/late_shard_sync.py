import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

PARTS = 4


class Residual(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm, self.inner = nn.RMSNorm(width), nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.outer(nn.functional.gelu(self.inner(self.norm(x))))


def build():
    model = nn.Sequential(nn.Linear(6, 16), Residual(), Residual(), nn.Linear(16, 2))
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(27)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    draws = torch.Generator().manual_seed(800 + rank)
    for _ in range(16):
        for part in range(PARTS):
            model.set_requires_gradient_sync(part == PARTS - 1)
            x = torch.randn(8, 6, generator=draws)
            target = torch.stack([x.amax(1), x.amin(1)], 1)
            loss = nn.functional.mse_loss(model(x), target) / PARTS
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
