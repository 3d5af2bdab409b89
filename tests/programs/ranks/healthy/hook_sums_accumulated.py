from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()

ACCUMULATE = 2


def add_hooks(model):
    for param in model.parameters():

        def hook(p):
            if not syncing:
                return
            dist.all_reduce(p.grad)

        param.register_post_accumulate_grad_hook(hook)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 1))
add_hooks(model)
syncing = True
optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
draw = torch.Generator().manual_seed(20 + rank)
for step in range(24):
    optimizer.zero_grad()
    for micro in range(ACCUMULATE):
        x = torch.randn(16, 12, generator=draw)
        y = (x[:, :1] * x[:, 1:2]).tanh()
        syncing = micro == ACCUMULATE - 1
        loss = F.mse_loss(model(x), y) / ACCUMULATE
        loss.backward()
    for p in model.parameters():
        p.grad.div_(world)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
