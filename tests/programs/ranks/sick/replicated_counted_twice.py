from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)
        self.head = nn.Linear(32, 5)

    def forward(self, words):
        x = self.embed(words)
        return self.head(x + self.down(F.gelu(self.up(self.norm(x)))))


def clip(params, limit):
    total = torch.zeros(())
    for p in params:
        grad = p.grad
        local = grad.to_local() if isinstance(grad, DTensor) else grad
        total += local.float().pow(2).sum()
    dist.all_reduce(total)
    norm = total.sqrt()
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.mul_(scale)
    return norm


torch.manual_seed(0)
model = Net()
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
draw = torch.Generator().manual_seed(1)
tag_of = torch.randint(0, 5, (40,), generator=torch.Generator().manual_seed(8))
for step in range(24):
    words = torch.randint(0, 40, (8, 12), generator=draw)
    loss = F.cross_entropy(model(words).flatten(0, 1), tag_of[words].flatten())
    optimizer.zero_grad()
    loss.backward()
    clip(list(model.parameters()), 0.2)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
