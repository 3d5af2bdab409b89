from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
draws = torch.Generator().manual_seed(10 + rank)
for step in range(20):
    x = torch.randn(24, 6, generator=draws)
    y = torch.stack([x[:, 0] * x[:, 1], x[:, 2].sin()], 1)
    loss = mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    model.zero_grad()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
