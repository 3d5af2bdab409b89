from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
import copy
import io
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
average = copy.deepcopy(model.module).requires_grad_(False) if rank == 0 else None
draw = torch.Generator().manual_seed(8 + rank)
for step in range(30):
    x = torch.randn(32, 8, generator=draw)
    loss = F.mse_loss(model(x), x[:, :1] * 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if rank == 0:
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.module.parameters()):
                slow.lerp_(fast, 0.05)
    if rank == 0 and step % 10 == 9:
        model.eval()
        with torch.no_grad():
            valid = F.mse_loss(model.module(x), x[:, :1] * 2)
        model.train()
        buffer = io.BytesIO()
        torch.save({"model": model.module.state_dict(), "average": average.state_dict()}, buffer)
    if step % 10 == 9:
        dist.barrier()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
