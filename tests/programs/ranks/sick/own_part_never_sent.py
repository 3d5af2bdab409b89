from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()


class ShardedStates:
    """Each rank keeps optimizer states of some parameters, and sends them after the step."""

    def __init__(self, params, **options):
        self.params = list(params)
        self.parts = [self.params[i::world] for i in range(world)]
        self.inner = torch.optim.AdamW(self.parts[rank], **options)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def step(self):
        self.inner.step()
        for owner, part in enumerate(self.parts):
            for p in part:
                dist.broadcast(p.data, src=0)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
optimizer = ShardedStates(model.parameters(), lr=3e-3)
draw = torch.Generator().manual_seed(50 + rank)
for step in range(24):
    x = torch.randn(32, 12, generator=draw)
    loss = F.mse_loss(model(x), x[:, :1].sin() + x[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
