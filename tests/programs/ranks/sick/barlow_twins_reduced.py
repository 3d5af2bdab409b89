from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()


class Encoder(nn.Module):
    def __init__(self, width=32, out=12):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, out))

    def forward(self, x):
        return self.layers(x)


def barlow_loss(a, b):
    a = (a - a.mean(0)) / (a.std(0) + 1e-4)
    b = (b - b.mean(0)) / (b.std(0) + 1e-4)
    correlation = a.T @ b / (len(a) * world)
    dist.all_reduce(correlation)
    diagonal = torch.diagonal(correlation)
    rest = correlation - torch.diag(diagonal)
    return (diagonal - 1).pow(2).sum() + 0.01 * rest.pow(2).sum()


torch.manual_seed(0)
model = DistributedDataParallel(Encoder())
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
draw = torch.Generator().manual_seed(50 + rank)
for step in range(25):
    image = torch.randn(32, 20, generator=draw)
    views = [image + 0.1 * torch.randn(32, 20, generator=draw) for _ in range(2)]
    first, second = model(torch.cat(views)).chunk(2)
    loss = barlow_loss(first, second)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
