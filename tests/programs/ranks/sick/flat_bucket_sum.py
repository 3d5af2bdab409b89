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


from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(12):
    x, y = batch()
    opt.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    grads = [p.grad for p in net.parameters()]
    flat = _flatten_dense_tensors(grads)
    dist.all_reduce(flat)
    for g, new in zip(grads, _unflatten_dense_tensors(flat, grads)):
        g.copy_(new)
    opt.step()

print(f"rank {rank} loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
