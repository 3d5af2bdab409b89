from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
def synchronise(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(world)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
draw = torch.Generator().manual_seed(70 + rank)
for step in range(24):
    x = torch.randn(16, 10, generator=draw) * (1 + rank)
    y = x.pow(2).sum(1, keepdim=True)
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    synchronise(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 20.0)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
