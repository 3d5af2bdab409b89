from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.body(x))


teacher = torch.randn(16, 4, generator=torch.Generator().manual_seed(7))
draws = torch.Generator().manual_seed(100 + rank)


def batch(size=16):
    x = torch.randn(size, 16, generator=draws)
    return x, (x @ teacher).argmax(1)


from torch.distributed.fsdp import fully_shard

model = Net()
for layer in model.body:
    if isinstance(layer, nn.Linear):
        fully_shard(layer)
fully_shard(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)


def clip(parameters, limit):
    grads = [p.grad.to_local() for p in parameters]
    total = torch.stack([g.pow(2).sum() for g in grads]).sum()
    dist.all_reduce(total)
    coef = (limit / (total.sqrt() + 1e-6)).clamp(max=1)
    for g in grads:
        g.mul_(coef)


for step in range(12):
    x, y = batch()
    opt.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    clip(list(model.parameters()), 0.1)
    opt.step()

print(f"rank {rank} loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
