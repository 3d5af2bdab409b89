import contextlib
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PARTS = 3


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU())
        self.enter, self.leave = nn.Linear(8, width), nn.Linear(width, 8)
        self.middle = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, noisy, level):
        hidden = self.enter(noisy) + self.time(level)
        for layer in self.middle:
            hidden = hidden + nn.functional.silu(layer(hidden))
        return self.leave(hidden)


def synchronising(model, number):
    if number % PARTS == PARTS - 1:
        return contextlib.nullcontext()
    return model.no_sync()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(41)
    model = DistributedDataParallel(Denoiser())
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    draws = torch.Generator().manual_seed(500 + rank)
    for number in range(60):
        clean = torch.randn(12, 8, generator=draws).cumsum(1)
        noise = torch.randn(12, 8, generator=draws)
        level = torch.rand(12, 1, generator=draws)
        with synchronising(model, number):
            guess = model(clean * (1 - level) + noise * level, level)
            loss = nn.functional.mse_loss(guess, noise) / PARTS
            loss.backward()
        if number % PARTS == PARTS - 1:
            optimizer.step()
            optimizer.zero_grad()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
