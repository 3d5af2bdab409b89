from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()

BUCKET = 4096


class Reducer:
    def __init__(self, params):
        self.params = [p for p in params if p.requires_grad]

    def flush(self, bucket):
        flat = torch.cat([p.grad.flatten() for p in bucket])
        dist.all_reduce(flat)
        flat /= world
        start = 0
        for p in bucket:
            p.grad.copy_(flat[start : start + p.numel()].view_as(p))
            start += p.numel()

    def reduce(self):
        bucket, filled = [], 0
        for p in reversed(self.params):
            bucket.append(p)
            filled += p.numel()
            if filled >= BUCKET:
                self.flush(bucket)
                bucket, filled = [], 0


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
reducer = Reducer(model.parameters())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
draw = torch.Generator().manual_seed(7 + rank)
mix = torch.randn(24, 2, generator=torch.Generator().manual_seed(3))
for step in range(30):
    x = torch.randn(32, 24, generator=draw)
    loss = F.mse_loss(model(x), (x @ mix).sin())
    optimizer.zero_grad()
    loss.backward()
    reducer.reduce()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
