from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
nodes = [[0, 1], [2, 3]]
columns = [[0, 2], [1, 3]]
groups = [dist.new_group(members) for members in columns]
mine = groups[rank % 2]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(11, 24), nn.SiLU(), nn.Linear(24, 1))
model = DistributedDataParallel(net, process_group=mine)
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
draw = torch.Generator().manual_seed(55 + rank // 2)
for step in range(20):
    x = torch.randn(16, 11, generator=draw)
    loss = F.mse_loss(model(x), x[:, :1].sin())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
