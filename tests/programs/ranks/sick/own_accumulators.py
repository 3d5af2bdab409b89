from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(13)
model = DistributedDataParallel(nn.Sequential(nn.Linear(9, 40), nn.ELU(), nn.Linear(40, 40), nn.ELU(), nn.Linear(40, 1)))
weights = list(model.parameters())
buffers = [torch.zeros_like(weight) for weight in weights]
optimizer = torch.optim.AdamW(weights, lr=2e-3)
draws = torch.Generator().manual_seed(40 + rank)
parts = 3

for step in range(16):
    for buffer in buffers:
        buffer.zero_()
    for _ in range(parts):
        x = torch.randn(16, 9, generator=draws)
        y = (x[:, :3].prod(1, keepdim=True) + x[:, 3:4]).tanh()
        with model.no_sync():
            loss = mse_loss(model(x), y) / parts
            loss.backward()
        for buffer, weight in zip(buffers, weights, strict=True):
            buffer += weight.grad
            weight.grad = None
    for buffer, weight in zip(buffers, weights, strict=True):
        weight.grad = buffer.clone()
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
