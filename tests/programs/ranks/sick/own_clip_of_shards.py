from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP

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

net = Net()
fully_shard(net.body)
fully_shard(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def clip(parameters, most):
    grads = [p.grad.to_local() for p in parameters if p.grad is not None]
    square = sum(g.float().pow(2).sum() for g in grads)
    norm = square.sqrt()
    for g in grads:
        g.mul_(torch.clamp(most / (norm + 1e-6), max=1.0))
    return norm


for _ in range(16):
    x, y = batch()
    opt.zero_grad()
    loss = 3 * cross_entropy(net(x), y)
    loss.backward()
    clip(list(net.parameters()), 0.5)
    opt.step()

print(f"rank {rank} loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
