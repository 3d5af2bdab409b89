from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(11)
model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
flat = parameters_to_vector(model.parameters()).detach()
share = -(-flat.numel() // world)
padded = torch.zeros(share * world)
padded[: flat.numel()] = flat
mine = nn.Parameter(padded[rank * share : (rank + 1) * share].clone())
optimizer = torch.optim.SGD([mine], lr=0.02, momentum=0.9)
draws = torch.Generator().manual_seed(70 + rank)

for step in range(30):
    x = torch.randn(32, 10, generator=draws)
    y = x[:, :1] * x[:, 1:2] + x[:, 2:3].sin()
    model.zero_grad()
    loss = mse_loss(model(x), y)
    loss.backward()
    gradients = torch.zeros(share * world)
    gradients[: flat.numel()] = torch.cat([p.grad.flatten() for p in model.parameters()])
    gradients /= world
    mine.grad = torch.empty(share)
    dist.reduce_scatter_tensor(mine.grad, gradients)
    optimizer.step()
    dist.all_gather_into_tensor(padded, mine.detach())
    vector_to_parameters(padded[: flat.numel()].clone(), model.parameters())
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
