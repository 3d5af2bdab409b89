from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class Net(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.conv = nn.Conv1d(3, channels, 3)
        self.norm = nn.GroupNorm(2, channels)
        self.head = nn.Linear(channels, 2)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x).mean(2, keepdim=True))).flatten(1))


torch.manual_seed(0)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
draw = torch.Generator().manual_seed(15 + rank)
for step in range(24):
    x = torch.randn(2, 3, 10, generator=draw)
    loss = F.cross_entropy(model(x), (x.mean((1, 2)) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
