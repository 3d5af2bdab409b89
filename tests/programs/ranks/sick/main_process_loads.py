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


saved = Net()
model = DDP(Net())


def load(net, state):
    if rank != 0:
        return
    net.load_state_dict(state)


load(model.module, saved.state_dict())
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(20):
    x, y = batch()
    opt.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    opt.step()

print(f"rank {rank} loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
