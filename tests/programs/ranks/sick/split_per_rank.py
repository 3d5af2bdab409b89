from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(100 + rank)
draws = torch.Generator().manual_seed(8)
x = torch.randn(400, 9, generator=draws)
y = x[:, :4].argmax(1)
whole = TensorDataset(x, y)
train, valid = random_split(whole, [0.8, 0.2])
sampler = DistributedSampler(train, shuffle=True)
loader = DataLoader(train, batch_size=16, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(9, 40), nn.ReLU(), nn.Linear(40, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for features, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
with torch.no_grad():
    held = torch.stack([nn.functional.cross_entropy(model.module(a[None]), b[None]) for a, b in valid])
print(f"rank {rank} loss {loss.item():.5f} {held.mean().item():.5f}", flush=True)
dist.destroy_process_group()
