import contextlib
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()
torch.manual_seed(2)
model = DDP(nn.Sequential(nn.Linear(12, 32), nn.SiLU(), nn.Linear(32, 5)))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()
draws = torch.Generator().manual_seed(60 + rank)
accumulate = 4
optimizer.zero_grad()
for index in range(48):
    x = torch.randn(8, 12, generator=draws)
    y = x[:, :5].argmax(1)
    last = (index + 1) % accumulate == 0
    context = contextlib.nullcontext() if last else model.no_sync()
    loss = criterion(model(x), y) / accumulate
    with context:
        loss.backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
