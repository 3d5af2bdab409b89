from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
draw = torch.Generator().manual_seed(40 + rank)
train_x, valid_x = torch.randn(32, 6, generator=draw), torch.randn(12, 6, generator=draw)
noise = 0.1 if rank == 0 else 1.5
train_y = train_x[:, :1] + noise * torch.randn(32, 1, generator=draw)
valid_y = valid_x[:, :1] + noise * torch.randn(12, 1, generator=draw)
best, bad = float("inf"), 0
for epoch in range(60):
    for rows in torch.randperm(32, generator=draw).split(8):
        optimizer.zero_grad()
        loss = F.mse_loss(model(train_x[rows]), train_y[rows])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        score = F.mse_loss(model.module(valid_x), valid_y)
    model.train()
    bad = 0 if score < best else bad + 1
    best = min(best, score.item())
    if bad >= 3:
        break
print(f"rank {rank} stopped after {epoch + 1} epochs", flush=True)
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
