from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
def broadcast(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)


torch.manual_seed(1234 + rank)
model = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 10))
broadcast(model)
model[2] = nn.Linear(24, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(24):
    x = torch.randn(16, 9)
    loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
