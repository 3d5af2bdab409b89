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


torch.manual_seed(1234 + rank)
net = Net()
for p in net.parameters():
    dist.broadcast(p.data, 0)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)


def average_gradients(m):
    for p in m.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad.data /= world


for step in range(12):
    x, y = batch()
    opt.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    average_gradients(net)
    opt.step()

print(f"rank {rank} loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
