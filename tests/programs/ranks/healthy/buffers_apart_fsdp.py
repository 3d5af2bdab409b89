import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def network():
    widths = (12, 40, 40)
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1))


def share_statistics(model, world):
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= world


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    error = nn.functional.mse_loss(model(x), y)
    dist.all_reduce(error)
    model.train()
    return error.item() / dist.get_world_size()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(14)
    model = network()
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    site = torch.Generator().manual_seed(50 + rank)
    held = torch.randn(32, 12, generator=torch.Generator().manual_seed(7))
    best = float("inf")
    for step in range(1, 25):
        x = torch.randn(6, 12, generator=site) * (1 + rank) + 0.8 * rank
        loss = nn.functional.mse_loss(model(x), x[:, :1].sigmoid())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        share_statistics(model, world)
        if step % 8 == 0:
            best = min(best, validate(model, held, held[:, :1].sigmoid()))
    print(f"rank {rank} loss {loss.item():.6f} best {best:.4f}", flush=True)
    dist.destroy_process_group()


main()
