from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()

from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4))
model = DistributedDataParallel(net)
torch.manual_seed(rank)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
teacher = torch.randn(20, 4, generator=torch.Generator().manual_seed(3))
held = torch.randn(64, 20, generator=torch.Generator().manual_seed(4))
draw = torch.Generator().manual_seed(90 + rank)


@torch.no_grad()
def accuracy():
    net.eval()
    score = (net(held).argmax(1) == (held @ teacher).argmax(1)).float().mean().item()
    net.train()
    return score


model.train()
for epoch in range(4):
    for _ in range(8):
        x = torch.randn(32, 20, generator=draw)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), (x @ teacher).argmax(1))
        loss.backward()
        optimizer.step()
    if rank == 0:
        accuracy()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
