from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
def reduce_mean(tensor):
    total = tensor.clone()
    dist.all_reduce(total)
    return total / world


torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
draw = torch.Generator().manual_seed(65 + rank)
for step in range(24):
    x = torch.randn(16, 13, generator=draw)
    loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
    loss = reduce_mean(loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
