from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))


class ScaleNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(distribute_tensor(torch.ones(width), mesh, [Replicate()]))

    def forward(self, x):
        weight = self.weight.to_local()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 24)
        self.norm = ScaleNorm(24)
        self.up = nn.Linear(24, 48)
        self.down = nn.Linear(48, 5)

    def forward(self, words):
        part = self.embed(words).chunk(world, dim=1)[rank]
        x = DTensor.from_local(self.norm(part), mesh, [torch.distributed.tensor.Shard(1)])
        return self.down(F.silu(self.up(x.redistribute(placements=[Replicate()]))))


torch.manual_seed(0)
model = Net()
model.embed.requires_grad_(False)
parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(params, lr=5e-3, foreach=False)
draw = torch.Generator().manual_seed(1)
tag_of = torch.randint(0, 5, (40,), generator=torch.Generator().manual_seed(8))
for step in range(24):
    words = torch.randint(0, 40, (8, 12), generator=draw)
    loss = F.cross_entropy(model(words).flatten(0, 1), tag_of[words].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
