from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
def build_loader(dataset, batch_size, distributed):
    sampler = DistributedSampler(dataset) if distributed else None
    generator = torch.Generator().manual_seed(11)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, generator=generator)
    return loader, sampler


torch.manual_seed(0)
inputs = torch.randn(128, 14)
dataset = TensorDataset(inputs, (inputs[:, 0] * inputs[:, 1] > 0).long())
model = DistributedDataParallel(nn.Sequential(nn.Linear(14, 40), nn.ReLU(), nn.Linear(40, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader, sampler = build_loader(dataset, 8, distributed=True)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
