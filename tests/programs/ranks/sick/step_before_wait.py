from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(20, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
rule = torch.randn(20, 6, generator=torch.Generator().manual_seed(8))
draws = torch.Generator().manual_seed(90 + rank)

for step in range(25):
    x = torch.randn(32, 20, generator=draws)
    y = (x @ rule).argmax(1)
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    works = []
    for weight in model.parameters():
        weight.grad.div_(world)
        works.append(dist.all_reduce(weight.grad, async_op=True))
    optimizer.step()
    for work in works:
        work.wait()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
