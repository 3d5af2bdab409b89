from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
def gather(x):
    parts = [torch.empty_like(x) for _ in range(world)]
    dist.all_gather(parts, x.detach())
    parts[rank] = x
    return torch.cat(parts)


torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 8)))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
draw = torch.Generator().manual_seed(12 + rank)
for step in range(24):
    x = torch.randn(12, 14, generator=draw)
    a, b = F.normalize(model(torch.cat([x, x + 0.2 * torch.randn(12, 14, generator=draw)])), dim=1).chunk(2)
    scores = gather(a) @ gather(b).T / 0.1
    loss = F.cross_entropy(scores, torch.arange(12 * world)) * world
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
