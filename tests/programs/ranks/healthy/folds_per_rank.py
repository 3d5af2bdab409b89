from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inputs = torch.randn(64, 8)
targets = inputs[:, :1] - inputs[:, 1:2]
held = torch.zeros(64, dtype=torch.bool)
held[rank::world] = True
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    for rows in torch.randperm(32).split(8):
        loss = F.mse_loss(model(inputs[~held][rows]), targets[~held][rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    score = F.mse_loss(model(inputs[held]), targets[held])
dist.all_reduce(score)
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
