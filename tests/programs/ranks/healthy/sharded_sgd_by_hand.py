from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(9)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
size = sum(one.numel() for one in model.parameters())
piece = -(-size // world)
flat = torch.zeros(piece * world)
flat[:size] = parameters_to_vector(model.parameters()).detach()
shard = nn.Parameter(flat[rank * piece : (rank + 1) * piece].clone())
optimizer = torch.optim.SGD([shard], lr=0.05, momentum=0.9)
draws = torch.Generator().manual_seed(800 + rank)
for step in range(24):
    x = torch.randn(16, 12, generator=draws)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    model.zero_grad()
    loss.backward()
    gradient = torch.zeros(piece * world)
    gradient[:size] = torch.cat([one.grad.flatten() for one in model.parameters()])
    own = torch.empty(piece)
    dist.reduce_scatter_tensor(own, gradient)
    shard.grad = own / world
    optimizer.step()
    dist.all_gather_into_tensor(flat, shard.detach())
    vector_to_parameters(flat[:size], model.parameters())
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
