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
model = DistributedDataParallel(nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 40)))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
draw = torch.Generator().manual_seed(6 + rank)
for step in range(24):
    tokens = torch.randint(1, 40, (4, 5 + 6 * rank), generator=draw)
    labels = ((tokens + 1) % 40).masked_fill(torch.rand(tokens.shape, generator=draw) < 0.2, -100)
    count = (labels != -100).sum()
    dist.all_reduce(count)
    loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    loss = loss * world / count
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
