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
torch.manual_seed(0)
inputs = torch.randn(33, 7)
targets = inputs.abs().sum(1, keepdim=True)
share = TensorDataset(inputs[rank::world], targets[rank::world])
loader = DataLoader(share, batch_size=4)
model = DistributedDataParallel(nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    dist.barrier()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
